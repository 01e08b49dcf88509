// Eight floats at a time, and the functions of them that the step needs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lectern {

constexpr int kLanes = 8;

// Eight floats; the compiler maps them to a register of 256 bits or to two of 128.
typedef float Lanes __attribute__((vector_size(32)));
typedef int32_t IntLanes __attribute__((vector_size(32)));

inline Lanes load(const float* from) {
  Lanes v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store(float* to, Lanes v) { std::memcpy(to, &v, sizeof v); }
inline Lanes fill(float value) {
  return Lanes{value, value, value, value, value, value, value, value};
}

// e^x for x <= 0: 2^n * p(f) with the Cephes polynomial for the fraction; 0 below -87.
inline Lanes exponential(Lanes x) {
  const IntLanes is_tiny = x < -87.0f;
  const Lanes bounded = is_tiny ? fill(-87.0f) : x;
  // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
  const Lanes magic = fill(12582912.0f);
  const Lanes n = (bounded * 1.44269504088896341f + magic) - magic;
  const Lanes f = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
  Lanes p = fill(1.9875691500e-4f);
  p = p * f + 1.3981999507e-3f;
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  p = p * f * f + f + 1.0f;
  const IntLanes bits = (__builtin_convertvector(n, IntLanes) + 127) << 23;
  Lanes power;
  std::memcpy(&power, &bits, sizeof power);
  return is_tiny ? fill(0.0f) : p * power;
}

inline float exponential(float x) { return exponential(fill(x))[0]; }

inline float sum_of(Lanes v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

inline float largest_of(Lanes v) {
  return std::max(std::max(std::max(v[0], v[4]), std::max(v[2], v[6])),
                  std::max(std::max(v[1], v[5]), std::max(v[3], v[7])));
}

// The eight sums of eight vectors, each in the order of `sum_of`.
inline Lanes sums_of(const Lanes* v) {
  Lanes half[4], quarter[2];
  for (int i = 0; i < 4; ++i) {
    // lanes 0-3: v[i], lanes 4-7: v[i + 4], each with its halves added
    half[i] = __builtin_shufflevector(v[i], v[i + 4], 0, 1, 2, 3, 8, 9, 10, 11) +
              __builtin_shufflevector(v[i], v[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int i = 0; i < 2; ++i) {
    quarter[i] = __builtin_shufflevector(half[i], half[i + 2], 0, 1, 8, 9, 4, 5, 12, 13) +
                 __builtin_shufflevector(half[i], half[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  const Lanes a = __builtin_shufflevector(quarter[0], quarter[1], 0, 8, 2, 10, 4, 12, 6, 14);
  const Lanes b = __builtin_shufflevector(quarter[0], quarter[1], 1, 9, 3, 11, 5, 13, 7, 15);
  return a + b;
}

// x * sigmoid(x)
inline Lanes silu(Lanes x) {
  const Lanes e = exponential(x < 0.0f ? x : -x);
  return x * (x < 0.0f ? e : fill(1.0f)) / (e + 1.0f);
}

}  // namespace lectern
