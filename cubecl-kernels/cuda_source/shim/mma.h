// In place of CUDA's: only what manual matrix kernels need; `wmma` fragments are not emulated.
#pragma once
#include "half.hpp"

namespace nvcuda {
namespace wmma {
inline float __float_to_tf32(float value) {
    uint32_t bits = emulator::bits_of(value);
    return emulator::float_of((bits + 0x0FFF + ((bits >> 13) & 1)) & 0xFFFFE000);
}
}  // namespace wmma
}  // namespace nvcuda
