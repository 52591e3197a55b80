// __half and __nv_bfloat16: arithmetic is done in float and rounded to nearest even, as the GPU's is in effect.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace emulator {

inline uint32_t bits_of(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }
inline float float_of(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }

struct HalfFormat {
    static uint16_t from(float value) { _Float16 half = static_cast<_Float16>(value); uint16_t bits; memcpy(&bits, &half, 2); return bits; }
    static float to(uint16_t bits) { _Float16 half; memcpy(&half, &bits, 2); return static_cast<float>(half); }
};
struct Bfloat16Format {
    static uint16_t from(float value) {
        uint32_t bits = bits_of(value);
        if (value != value) return 0x7FFF;
        return uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    }
    static float to(uint16_t bits) { return float_of(uint32_t(bits) << 16); }
};

template <class Format> struct Sixteen {
    uint16_t bits;
    Sixteen() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
    Sixteen(T value) : bits(Format::from(static_cast<float>(value))) {}
    template <class Other> explicit Sixteen(const Sixteen<Other>& other) : bits(Format::from(float(other))) {}
    operator float() const { return Format::to(bits); }
};

#define EMULATOR_OPERATOR(op)                                                                                            \
    template <class F> Sixteen<F> operator op(Sixteen<F> a, Sixteen<F> b) { return Sixteen<F>(float(a) op float(b)); }   \
    template <class F> Sixteen<F>& operator op##=(Sixteen<F>& a, Sixteen<F> b) { return a = a op b; }
EMULATOR_OPERATOR(+)
EMULATOR_OPERATOR(-)
EMULATOR_OPERATOR(*)
EMULATOR_OPERATOR(/)
#undef EMULATOR_OPERATOR
template <class F> Sixteen<F> operator-(Sixteen<F> a) { a.bits ^= 0x8000; return a; }
#define EMULATOR_COMPARISON(op) \
    template <class F> bool operator op(Sixteen<F> a, Sixteen<F> b) { return float(a) op float(b); }
EMULATOR_COMPARISON(==)
EMULATOR_COMPARISON(!=)
EMULATOR_COMPARISON(<)
EMULATOR_COMPARISON(<=)
EMULATOR_COMPARISON(>)
EMULATOR_COMPARISON(>=)
#undef EMULATOR_COMPARISON

template <class F> struct alignas(4) Pair {
    Sixteen<F> x, y;
    Pair() = default;
    Pair(Sixteen<F> both) : x(both), y(both) {}
    Pair(Sixteen<F> x, Sixteen<F> y) : x(x), y(y) {}
    explicit Pair(float both) : x(both), y(both) {}
};
#define EMULATOR_OPERATOR(op)                                                                                   \
    template <class F> Pair<F> operator op(Pair<F> a, Pair<F> b) { return Pair<F>(a.x op b.x, a.y op b.y); }    \
    template <class F> Pair<F>& operator op##=(Pair<F>& a, Pair<F> b) { return a = a op b; }
EMULATOR_OPERATOR(+)
EMULATOR_OPERATOR(-)
EMULATOR_OPERATOR(*)
EMULATOR_OPERATOR(/)
#undef EMULATOR_OPERATOR
template <class F> Pair<F> operator-(Pair<F> a) { return Pair<F>(-a.x, -a.y); }

}  // namespace emulator

using __half = emulator::Sixteen<emulator::HalfFormat>;
using __nv_bfloat16 = emulator::Sixteen<emulator::Bfloat16Format>;
using __half2 = emulator::Pair<emulator::HalfFormat>;
using __nv_bfloat162 = emulator::Pair<emulator::Bfloat16Format>;

#define EMULATOR_UNARY(name, function)                                                                                          \
    template <class F> emulator::Sixteen<F> h##name(emulator::Sixteen<F> a) { return emulator::Sixteen<F>(function(float(a))); } \
    template <class F> emulator::Pair<F> h2##name(emulator::Pair<F> a) { return emulator::Pair<F>(h##name(a.x), h##name(a.y)); }
EMULATOR_UNARY(exp, expf)
EMULATOR_UNARY(log, logf)
EMULATOR_UNARY(sin, sinf)
EMULATOR_UNARY(cos, cosf)
EMULATOR_UNARY(sqrt, sqrtf)
EMULATOR_UNARY(rsqrt, 1.0f / sqrtf)
EMULATOR_UNARY(ceil, ceilf)
EMULATOR_UNARY(floor, floorf)
EMULATOR_UNARY(trunc, truncf)
EMULATOR_UNARY(rint, rintf)
#undef EMULATOR_UNARY

template <class F> emulator::Sixteen<F> __hmax(emulator::Sixteen<F> a, emulator::Sixteen<F> b) { return emulator::Sixteen<F>(fmaxf(a, b)); }
template <class F> emulator::Sixteen<F> __hmin(emulator::Sixteen<F> a, emulator::Sixteen<F> b) { return emulator::Sixteen<F>(fminf(a, b)); }
template <class F> emulator::Sixteen<F> __habs(emulator::Sixteen<F> a) { a.bits &= 0x7FFF; return a; }
template <class F> bool __hisnan(emulator::Sixteen<F> a) { return float(a) != float(a); }
template <class F> bool __hisinf(emulator::Sixteen<F> a) { return std::isinf(float(a)); }
template <class F> emulator::Sixteen<F> __hfma(emulator::Sixteen<F> a, emulator::Sixteen<F> b, emulator::Sixteen<F> c) {
    return emulator::Sixteen<F>(fmaf(a, b, c));
}
template <class F> emulator::Pair<F> __hmax2(emulator::Pair<F> a, emulator::Pair<F> b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
template <class F> emulator::Pair<F> __hmin2(emulator::Pair<F> a, emulator::Pair<F> b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
template <class F> emulator::Pair<F> __habs2(emulator::Pair<F> a) { return {__habs(a.x), __habs(a.y)}; }
template <class F> emulator::Pair<F> __hfma2(emulator::Pair<F> a, emulator::Pair<F> b, emulator::Pair<F> c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
