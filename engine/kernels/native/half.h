// float16 as 16 bits of an integer.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace lectern {

inline float half_to_float(uint16_t half) {
#if defined(__F16C__)
  return _cvtsh_ss(half);
#else
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  uint32_t exponent = (half >> 10) & 31, mantissa = half & 1023;
  uint32_t bits;
  if (exponent == 31) {
    bits = sign | 0x7f800000 | mantissa << 13;
  } else if (exponent != 0) {
    bits = sign | (exponent + 112) << 23 | mantissa << 13;
  } else {
    float value = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
    std::memcpy(&bits, &value, 4);
    bits |= sign;
  }
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
#endif
}

inline uint16_t float_to_half(float value) {
#if defined(__F16C__)
  return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint16_t sign = bits >> 16 & 0x8000;
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00;
  if (bits < 0x38800000) {  // below the normal numbers: steps of 2^-24, ties to even
    float magnitude;
    std::memcpy(&magnitude, &bits, 4);
    const float scaled = magnitude * 16777216.0f;
    uint32_t steps = static_cast<uint32_t>(scaled);
    const float rest = scaled - static_cast<float>(steps);
    if (rest > 0.5f || (rest == 0.5f && (steps & 1))) ++steps;
    return sign | steps;
  }
  const uint32_t rounded = bits + 0xfff + (bits >> 13 & 1);
  return sign | (rounded - 0x38000000) >> 13;
#endif
}

}  // namespace lectern
