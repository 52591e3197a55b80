// Runs kernels: every thread of a block is a fiber with a stack of its own, blocks run one after the other. Threads of the
// host run their launches side by side: all state is theirs.
//
// A thread runs until it waits for others. The order in which ready threads run turns from pass to pass, so that a missing
// barrier gives wrong results instead of the right ones by luck. When no thread can run and some have not ended, the
// launch fails and says where each waits. For x86-64 (the switch between fibers is assembly).
#include "emulator.hpp"

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <vector>

namespace emulator {
namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr size_t kStack = 256 * 1024;
constexpr size_t kMaxShared = 256 * 1024;
constexpr size_t kGuard = 256;
// Neither a number in any type of floats, nor a sensible index.
constexpr unsigned char kUnwritten = 0xFF;

enum class State { Ready, AtBarrier, InWarp, AtWord, Ended };

struct Fiber : Thread {
    void* stack_pointer;
    State state;
    unsigned warp;
    // What it waits for.
    const char* what;
    const volatile uint32_t* word;
    uint32_t value;
    unsigned exchanges;
    // Groups of copies that it has made.
    unsigned groups;
};

struct Warp {
    Value values[2][kLanes];
    const char* operation;
    unsigned lanes, arrived, ended;
};

// `group` is 0 until the copy is in a group.
struct Copy { const void* barrier; void* to; const void* from; size_t bytes; unsigned group; };

// What a launch needs, kept for the next one of the same thread of the host.
struct Memory {
    Fiber fibers[kMaxThreads];
    Warp warps[kMaxThreads / kLanes];
    std::vector<Copy> copies;
    char error[1024] = "";
    char* stacks = nullptr;
    unsigned char* shared = nullptr;

    // Whether there was as much.
    bool allocate() {
        if (shared) return true;
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* pages = stacks ? stacks : mmap(nullptr, kMaxThreads * kStack, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (pages == MAP_FAILED) return false;
        stacks = static_cast<char*>(pages);
        shared = static_cast<unsigned char*>(aligned_alloc(1024, kMaxShared + 1024));
        return shared != nullptr;
    }
    ~Memory() {
        if (stacks) munmap(stacks, kMaxThreads * kStack);
        free(shared);
    }
};

EMULATOR_OWN Memory* memory;
EMULATOR_OWN unsigned threads, at_barrier, ended;
EMULATOR_OWN void* scheduler_stack_pointer;
EMULATOR_OWN size_t shared_bytes;
EMULATOR_OWN bool has_failed;
EMULATOR_OWN void (*kernel_entry)(void**);
EMULATOR_OWN void** kernel_arguments;

}  // namespace

EMULATOR_OWN Thread* current;
EMULATOR_OWN uint3 block_index, block_size, grid_size;

// Saves the callee-saved registers on the stack that it leaves, and takes those of the stack that it enters.
extern "C" void emulator_switch(void** leaves, void* enters);
asm(R"(
.text
.type emulator_switch, @function
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch, .-emulator_switch
)");

namespace {

Fiber& self() { return *static_cast<Fiber*>(current); }

void to_scheduler() { emulator_switch(&self().stack_pointer, scheduler_stack_pointer); }

void complete_exchange(unsigned warp) {
    Warp& w = memory->warps[warp];
    w.arrived = 0;
    w.operation = nullptr;
    for (unsigned lane = 0; lane < w.lanes; lane++) {
        Fiber& fiber = memory->fibers[warp * kLanes + lane];
        if (fiber.state == State::InWarp) fiber.state = State::Ready;
    }
}

void fiber_main() {
    kernel_entry(kernel_arguments);
    Fiber& fiber = self();
    Warp& warp = memory->warps[fiber.warp];
    fiber.state = State::Ended;
    ended++;
    warp.ended++;
    if (warp.arrived > 0 && warp.arrived + warp.ended == warp.lanes) complete_exchange(fiber.warp);
    to_scheduler();
    abort();
}

void describe_stuck_threads() {
    auto& error = memory->error;
    int used = snprintf(error, sizeof(error), "block (%u, %u, %u): its threads wait for each other for ever:", block_index.x,
                        block_index.y, block_index.z);
    struct Group { State state; const char* what; unsigned count, first; } groups[8] = {};
    unsigned kinds = 0;
    for (unsigned thread = 0; thread < threads; thread++) {
        const Fiber& fiber = memory->fibers[thread];
        const char* what = fiber.state == State::Ended ? "ended" : fiber.what;
        unsigned kind = 0;
        while (kind < kinds && strcmp(groups[kind].what, what) != 0) kind++;
        if (kind == 8) continue;
        if (kind == kinds) groups[kinds++] = Group{fiber.state, what, 0, thread};
        groups[kind].count++;
    }
    for (unsigned kind = 0; kind < kinds && used < int(sizeof(error)); kind++)
        used += snprintf(error + used, sizeof(error) - used, " %u at %s (the first is thread %u);", groups[kind].count,
                         groups[kind].what, groups[kind].first);
    has_failed = true;
}

void run_block(unsigned turn) {
    threads = block_size.x * block_size.y * block_size.z;
    at_barrier = ended = 0;
    memory->copies.clear();
    memset(memory->shared, kUnwritten, shared_bytes + kGuard);
    for (unsigned thread = 0; thread < threads; thread++) {
        Fiber& fiber = memory->fibers[thread];
        fiber.index = uint3{thread % block_size.x, thread / block_size.x % block_size.y, thread / (block_size.x * block_size.y)};
        fiber.lane = thread % kLanes;
        fiber.warp = thread / kLanes;
        fiber.state = State::Ready;
        fiber.exchanges = 0;
        fiber.groups = 0;
        // As if `emulator_switch` had left it at the beginning of `fiber_main`: six registers, where to return to, and a
        // word so that the stack is aligned as after a call.
        void** top = reinterpret_cast<void**>(memory->stacks + (thread + 1) * kStack) - 8;
        memset(top, 0, 8 * sizeof(void*));
        top[6] = reinterpret_cast<void*>(fiber_main);
        fiber.stack_pointer = top;
    }
    for (unsigned warp = 0; warp * kLanes < threads; warp++) {
        unsigned lanes = threads - warp * kLanes;
        memory->warps[warp].lanes = lanes < kLanes ? lanes : kLanes;
        memory->warps[warp].arrived = memory->warps[warp].ended = 0;
        memory->warps[warp].operation = nullptr;
    }
    while (ended < threads && !has_failed) {
        bool has_run = false;
        turn++;
        unsigned first = turn * 2654435761u % threads;
        for (unsigned i = 0; i < threads && !has_failed; i++) {
            unsigned thread = turn % 2 ? (first + i) % threads : (first + threads - i) % threads;
            Fiber& fiber = memory->fibers[thread];
            if (fiber.state == State::AtWord && *fiber.word != fiber.value) fiber.state = State::Ready;
            if (fiber.state != State::Ready) continue;
            has_run = true;
            current = &fiber;
            emulator_switch(&scheduler_stack_pointer, fiber.stack_pointer);
        }
        if (!has_run && !has_failed) describe_stuck_threads();
    }
    for (size_t byte = 0; byte < kGuard && !has_failed; byte++)
        if (memory->shared[shared_bytes + byte] != kUnwritten) {
            snprintf(memory->error, sizeof(memory->error), "shared memory of %zu bytes was written at byte %zu", shared_bytes,
                     shared_bytes + byte);
            has_failed = true;
        }
}

}  // namespace

void fail(const char* format, ...) {
    auto& error = memory->error;
    int used = snprintf(error, sizeof(error), "block (%u, %u, %u), thread (%u, %u, %u): ", block_index.x, block_index.y,
                        block_index.z, current->index.x, current->index.y, current->index.z);
    va_list list;
    va_start(list, format);
    vsnprintf(error + used, sizeof(error) - used, format, list);
    va_end(list);
    has_failed = true;
    to_scheduler();
    abort();
}

unsigned char* shared() { return memory->shared; }

uint32_t to_shared(const void* pointer) {
    uintptr_t offset = reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(memory->shared);
    if (offset >= shared_bytes) fail("the address %p of shared memory is out of bounds", pointer);
    return uint32_t(offset);
}

void* from_shared(uint32_t address, size_t bytes) {
    if (address > shared_bytes || bytes > shared_bytes - address)
        fail("%zu bytes at %u lie outside the shared memory of %zu", bytes, address, shared_bytes);
    return memory->shared + address;
}

void block_barrier() {
    Fiber& fiber = self();
    if (++at_barrier == threads) {
        at_barrier = 0;
        for (unsigned thread = 0; thread < threads; thread++)
            if (memory->fibers[thread].state == State::AtBarrier) memory->fibers[thread].state = State::Ready;
        // It goes last, so that who waited does not always find the last one ahead.
        fiber.state = State::Ready;
    } else {
        fiber.state = State::AtBarrier;
        fiber.what = "__syncthreads";
    }
    to_scheduler();
}

const Value* exchange(const char* operation, const void* value, size_t bytes) {
    Fiber& fiber = self();
    Warp& warp = memory->warps[fiber.warp];
    // Two sets in turn: who is ahead writes the one while the other is still read.
    Value* values = warp.values[fiber.exchanges++ % 2];
    if (warp.arrived == 0) {
        memset(values, kUnwritten, sizeof(warp.values[0]));
        warp.operation = operation;
    } else if (strcmp(warp.operation, operation) != 0) {
        fail("is at %s, and other lanes of its warp at %s", operation, warp.operation);
    }
    memcpy(values[fiber.lane].bytes, value, bytes);
    if (++warp.arrived + warp.ended == warp.lanes) {
        complete_exchange(fiber.warp);
    } else {
        fiber.state = State::InWarp;
        fiber.what = operation;
        to_scheduler();
    }
    return values;
}

unsigned active_lanes() {
    unsigned mask = 0;
    const Fiber& fiber = self();
    for (unsigned lane = 0; lane < memory->warps[fiber.warp].lanes; lane++)
        if (memory->fibers[fiber.warp * kLanes + lane].state != State::Ended) mask |= 1u << lane;
    return mask;
}

void wait_while_equal(const volatile uint32_t* word, uint32_t value, const char* what) {
    Fiber& fiber = self();
    while (*word == value) {
        fiber.state = State::AtWord;
        fiber.what = what;
        fiber.word = word;
        fiber.value = value;
        to_scheduler();
    }
}

void copy_at_phase_end(const void* barrier, void* to, const void* from, size_t bytes) {
    memory->copies.push_back(Copy{barrier, to, from, bytes, 0});
}

namespace {

// Makes the copies for which `is_due` holds.
template <class F> void make_copies(F is_due) {
    size_t kept = 0;
    for (const Copy& copy : memory->copies) {
        if (is_due(copy)) {
            if (copy.from) memcpy(copy.to, copy.from, copy.bytes);
            else memset(copy.to, 0, copy.bytes);
        } else {
            memory->copies[kept++] = copy;
        }
    }
    memory->copies.resize(kept);
}

}  // namespace

void phase_ends(const void* barrier) {
    make_copies([=](const Copy& copy) { return copy.barrier == barrier; });
}

// Marks the copies of this thread that no barrier waits for yet as those of a barrier.
void copies_belong_to(const void* barrier) {
    for (Copy& copy : memory->copies)
        if (copy.barrier == current) copy.barrier = barrier;
}

// Makes a group of the copies of this thread that are in none and that no barrier waits for.
void commit_copies() {
    const unsigned group = ++self().groups;
    for (Copy& copy : memory->copies)
        if (copy.barrier == current && copy.group == 0) copy.group = group;
}

// Makes the copies of all groups of this thread but the last `pending`.
void wait_for_copies(unsigned pending) {
    const unsigned groups = self().groups;
    make_copies([=](const Copy& copy) {
        return copy.barrier == current && copy.group != 0 && copy.group + pending <= groups;
    });
}

}  // namespace emulator

// Runs a kernel over a grid. Returns the error, or null.
extern "C" const char* emulator_launch(void (*entry)(void**), void** arguments, const unsigned* grid, const unsigned* block,
                                       size_t dynamic_shared) {
    using namespace emulator;
    static thread_local std::unique_ptr<Memory> of_this_thread;
    if (!of_this_thread) of_this_thread.reset(new Memory);
    memory = of_this_thread.get();
    if (!memory->allocate()) return "no memory for the threads' stacks and shared memory";
    if (dynamic_shared + kGuard > kMaxShared) return "too much shared memory";
    if (block[0] * block[1] * block[2] > kMaxThreads) return "too many threads";
    has_failed = false;
    shared_bytes = dynamic_shared;
    kernel_entry = entry;
    kernel_arguments = arguments;
    block_size = uint3{block[0], block[1], block[2]};
    grid_size = uint3{grid[0], grid[1], grid[2]};
    unsigned turn = 0;
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                block_index = uint3{x, y, z};
                run_block(turn++);
                if (has_failed) return memory->error;
            }
    return nullptr;
}
