// What the shim's headers and the emulator share: the state of the running thread, and what a kernel calls.
// The emulator (emulator.cpp) is compiled once; every kernel is compiled with these headers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

struct uint3 { unsigned x, y, z; };

namespace emulator {

constexpr unsigned kLanes = 32;

// A variable of which each thread of the host has its own, read by one load: for pointers and numbers only, because the
// loader keeps little room for them.
#define EMULATOR_OWN __thread __attribute__((tls_model("initial-exec")))

// The thread that runs, and its block: read by the built-in variables.
struct Thread { uint3 index; unsigned lane; };
extern EMULATOR_OWN Thread* current;
extern EMULATOR_OWN uint3 block_index, block_size, grid_size;

// Ends the launch with an error; does not return.
[[noreturn]] void fail(const char* format, ...);

// The block's dynamic shared memory.
unsigned char* shared();
// The address as PTX has it, and back; `bytes` that do not lie in shared memory are an error.
uint32_t to_shared(const void* pointer);
void* from_shared(uint32_t address, size_t bytes);

void block_barrier();
// Waits for all lanes of the warp that still run, each with the same `operation` and a value of up to 16 bytes, and
// returns everybody's values. What an ended lane would have given is not a number.
struct alignas(16) Value { unsigned char bytes[16]; };
const Value* exchange(const char* operation, const void* value, size_t bytes);
// Which lanes run.
unsigned active_lanes();

// Runs other threads until `*word` is no longer `value`.
void wait_while_equal(const volatile uint32_t* word, uint32_t value, const char* what);
// A copy that is made when the barrier's phase ends, or when the thread waits for its group, and not before: a kernel that
// reads without waiting reads what was there.
void copy_at_phase_end(const void* barrier, void* to, const void* from, size_t bytes);
void phase_ends(const void* barrier);

// An operand of an `asm` statement.
struct Operand { uint64_t bits; void* target; unsigned bytes; };
template <class T> Operand in(const T& value) {
    Operand operand{0, nullptr, sizeof(T)};
    memcpy(&operand.bits, &value, sizeof(T));
    return operand;
}
template <class T> Operand out(T& target) {
    Operand operand{0, &target, sizeof(T)};
    memcpy(&operand.bits, &target, sizeof(T));
    return operand;
}
void assembly(const char* text, const Operand* operands);
template <class... O> void assembly_of(const char* text, O... operands) {
    const Operand list[] = {operands..., Operand{}};
    assembly(text, list);
}

// Calls a kernel with arguments as CUDA's launch has them: a pointer to each.
template <class F> struct Call;
template <class... A> struct Call<void (*)(A...)> {
    static constexpr int kCount = sizeof...(A);
    template <class T> struct Plain { using type = T; };
    template <class T> struct Plain<const T> { using type = T; };
    template <int... I> struct Indices {};
    template <int N, int... I> struct Make : Make<N - 1, N - 1, I...> {};
    template <int... I> struct Make<0, I...> { using type = Indices<I...>; };
    template <int... I> static void with(void (*kernel)(A...), void** arguments, Indices<I...>) {
        kernel(*static_cast<typename Plain<A>::type*>(arguments[I])...);
    }
    static void run(void (*kernel)(A...), void** arguments) { with(kernel, arguments, typename Make<kCount>::type{}); }
};

}  // namespace emulator
