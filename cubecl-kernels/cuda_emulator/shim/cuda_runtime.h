// In place of CUDA's: qualifiers, built-in variables, vector types, and the functions that CubeCL's sources call.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include "emulator.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static thread_local

#define threadIdx (emulator::current->index)
#define blockIdx (emulator::block_index)
#define blockDim (emulator::block_size)
#define gridDim (emulator::grid_size)
constexpr int warpSize = 32;

inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return uint3{x, y, z}; }
#define EMULATOR_VECTORS(name, type)                                        \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                \
    struct alignas(sizeof(type) == 8 ? 16 : 4 * sizeof(type)) name##4 { type x, y, z, w; };
EMULATOR_VECTORS(float, float)
EMULATOR_VECTORS(double, double)
EMULATOR_VECTORS(int, int)
EMULATOR_VECTORS(uint, unsigned)
EMULATOR_VECTORS(char, signed char)
EMULATOR_VECTORS(uchar, unsigned char)
EMULATOR_VECTORS(short, short)
EMULATOR_VECTORS(ushort, unsigned short)
EMULATOR_VECTORS(long, long long)
EMULATOR_VECTORS(ulong, unsigned long long)
#undef EMULATOR_VECTORS

// Threads.
#define __syncthreads() emulator::block_barrier()
inline void __threadfence() {}
inline void __threadfence_block() {}
inline unsigned __activemask() { return emulator::active_lanes(); }
inline void __syncwarp(unsigned = 0xFFFFFFFF) { emulator::exchange("__syncwarp", "", 0); }
inline unsigned __ballot_sync(unsigned, int predicate) {
    unsigned char value = predicate != 0;
    const emulator::Value* values = emulator::exchange("__ballot_sync", &value, 1);
    unsigned mask = 0;
    for (unsigned lane = 0; lane < 32; lane++) mask |= unsigned(values[lane].bytes[0] == 1) << lane;
    return mask;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
namespace emulator {
template <class T> T shuffle(const char* operation, const T& value, unsigned from) {
    static_assert(sizeof(T) <= 16, "a lane gives up to 16 bytes");
    const Value* values = exchange(operation, &value, sizeof(T));
    T result;
    memcpy(&result, values[from].bytes, sizeof(T));
    return result;
}
}  // namespace emulator
template <class T> T __shfl_sync(unsigned, T value, int from, int = 32) {
    return emulator::shuffle("__shfl_sync", value, unsigned(from) % 32);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
    return emulator::shuffle("__shfl_xor_sync", value, (emulator::current->lane ^ unsigned(mask)) % 32);
}
template <class T> T __shfl_up_sync(unsigned, T value, unsigned delta, int = 32) {
    unsigned lane = emulator::current->lane;
    return emulator::shuffle("__shfl_up_sync", value, lane < delta ? lane : lane - delta);
}
template <class T> T __shfl_down_sync(unsigned, T value, unsigned delta, int = 32) {
    unsigned lane = emulator::current->lane;
    return emulator::shuffle("__shfl_down_sync", value, lane + delta > 31 ? lane : lane + delta);
}
inline size_t __cvta_generic_to_shared(const void* pointer) { return emulator::to_shared(pointer); }

// Numbers.
using std::abs;
using std::isinf;
using std::isnan;
using std::pow;
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    return T(a) < T(b) ? T(b) : T(a);
}
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    return T(b) < T(a) ? T(b) : T(a);
}
inline float exp(float a) { return expf(a); }
inline float log(float a) { return logf(a); }
inline float sqrt(float a) { return sqrtf(a); }
inline float tanh(float a) { return tanhf(a); }
inline float sin(float a) { return sinf(a); }
inline float cos(float a) { return cosf(a); }
inline float erf(float a) { return erff(a); }
inline float log1p(float a) { return log1pf(a); }
inline float floor(float a) { return floorf(a); }
inline float ceil(float a) { return ceilf(a); }
inline float trunc(float a) { return truncf(a); }
inline float rint(float a) { return rintf(a); }
inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
inline float rsqrt(float a) { return 1.0f / sqrtf(a); }
inline double rsqrt(double a) { return 1.0 / ::sqrt(a); }
inline float __expf(float a) { return expf(a); }
inline float __logf(float a) { return logf(a); }
inline float __sinf(float a) { return sinf(a); }
inline float __cosf(float a) { return cosf(a); }
inline float __tanhf(float a) { return tanhf(a); }
inline float __powf(float a, float b) { return powf(a, b); }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return 1.0f / sqrtf(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fdividef(float a, float b) { return a / b; }
inline int __clz(int a) { return a == 0 ? 32 : __builtin_clz(unsigned(a)); }
inline int __clzll(long long a) { return a == 0 ? 64 : __builtin_clzll((unsigned long long)a); }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline int __ffsll(long long a) { return __builtin_ffsll(a); }
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline unsigned __brev(unsigned a) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; bit++) reversed |= (a >> bit & 1) << (31 - bit);
    return reversed;
}
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

// Atomic operations: one thread runs at a time, and none is left in between.
#define EMULATOR_ATOMIC(name, expression)                               \
    template <class T, class V> T atomic##name(T* place, V operand) {   \
        T old = *place, value = T(operand);                             \
        *place = expression;                                            \
        return old;                                                     \
    }
EMULATOR_ATOMIC(Add, old + value)
EMULATOR_ATOMIC(Sub, old - value)
EMULATOR_ATOMIC(Exch, value)
EMULATOR_ATOMIC(Min, value < old ? value : old)
EMULATOR_ATOMIC(Max, old < value ? value : old)
EMULATOR_ATOMIC(And, old & value)
EMULATOR_ATOMIC(Or, old | value)
EMULATOR_ATOMIC(Xor, old ^ value)
#undef EMULATOR_ATOMIC
template <class T, class C, class V> T atomicCAS(T* place, C expected, V value) {
    T old = *place;
    if (old == T(expected)) *place = T(value);
    return old;
}
