// Products of a tile with 256-bit registers: 16-bit sums of byte products.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "tile.h"

namespace lectern {
namespace {

// Rows of inputs that share each load of the weights; more do not fit the registers.
template <Kind kind>
constexpr int kRowsAtOnce = kind == kQ8 ? 2 : 4;

struct Pair {
  __m256i first, second;  // rows 0 to 7 and 8 to 15 of a tile
};

inline __m256i load(const uint8_t* data) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data));
}

inline __m256i low_half(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
inline __m256i high_half(__m256i v) { return low_half(_mm256_srli_epi16(v, 4)); }

// Bit `q` of each byte as a 16.
template <int q>
inline __m256i fifth_bit(__m256i bits) {
  const __m256i moved = q < 4 ? _mm256_slli_epi16(bits, q < 4 ? 4 - q : 0)
                              : _mm256_srli_epi16(bits, q < 4 ? 0 : q - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(16));
}

// Quads j and j + 4 of a record.
template <Kind kind, int j>
inline void load_quads(const uint8_t* record, Pair& a, Pair& b) {
  if constexpr (code_bytes(kind) == 512) {
    a = {load(record + 64 * j), load(record + 64 * j + 32)};
    b = {load(record + 64 * (j + 4)), load(record + 64 * (j + 4) + 32)};
  } else {
    const __m256i v = load(record + 64 * j), w = load(record + 64 * j + 32);
    a = {low_half(v), low_half(w)};
    b = {high_half(v), high_half(w)};
    if constexpr (code_bytes(kind) == 320) {
      const __m256i bits = load(record + 256), more = load(record + 288);
      a.first = _mm256_or_si256(a.first, fifth_bit<j>(bits));
      a.second = _mm256_or_si256(a.second, fifth_bit<j>(more));
      b.first = _mm256_or_si256(b.first, fifth_bit<j + 4>(bits));
      b.second = _mm256_or_si256(b.second, fifth_bit<j + 4>(more));
    }
  }
}

template <Kind kind>
inline void load_scales(const uint8_t* record, int index, __m256& first, __m256& second) {
  const auto* scales = reinterpret_cast<const __m128i*>(record + code_bytes(kind)) + 2 * index;
  first = _mm256_cvtph_ps(_mm_loadu_si128(scales));
  second = _mm256_cvtph_ps(_mm_loadu_si128(scales + 1));
}

// GCC would compute all products first and keep them in memory: they are more than the registers.
inline void keep_order(__m256i& a, __m256i& b) { asm("" : "+x"(a), "+x"(b)); }

inline __m256i widen(__m256i v) { return _mm256_madd_epi16(v, _mm256_set1_epi16(1)); }

// sum += scale * (input_scale * dot - zero_point * input_sum)
template <Kind kind>
inline __m256 add_scaled(__m256 sum, __m256i dot, __m256 scale, float input_scale,
                         float input_sum) {
  const __m256 value = _mm256_cvtepi32_ps(dot);
  __m256 term;
  if constexpr (has_min(kind)) {
    term = _mm256_mul_ps(value, _mm256_set1_ps(input_scale));
  } else {
    term = _mm256_fmsub_ps(value, _mm256_set1_ps(input_scale),
                           _mm256_set1_ps(zero_point(kind) * input_sum));
  }
  return _mm256_fmadd_ps(scale, term, sum);
}

// One quad of the tile times `R` rows, added to `sums` in 16 bits; `begin` sets them instead.
template <bool begin, int R>
inline void multiply_quad(const Pair& quad, const int8_t* codes, int64_t stride,
                          __m256i (&sums)[R][2]) {
  for (int r = 0; r < R; ++r) {
    const __m256i x = _mm256_set1_epi32(load_quad(codes + r * stride));
    const __m256i first = _mm256_maddubs_epi16(quad.first, x);
    const __m256i second = _mm256_maddubs_epi16(quad.second, x);
    sums[r][0] = begin ? first : _mm256_add_epi16(sums[r][0], first);
    sums[r][1] = begin ? second : _mm256_add_epi16(sums[r][1], second);
    keep_order(sums[r][0], sums[r][1]);
  }
}

template <int R>
inline void widen_all(const __m256i (&from)[R][2], __m256i (&to)[R][2]) {
  for (int r = 0; r < R; ++r) {
    to[r][0] = widen(from[r][0]);
    to[r][1] = widen(from[r][1]);
  }
}

template <int R>
inline void add_widened(const __m256i (&from)[R][2], __m256i (&to)[R][2]) {
  for (int r = 0; r < R; ++r) {
    to[r][0] = _mm256_add_epi32(to[r][0], widen(from[r][0]));
    to[r][1] = _mm256_add_epi32(to[r][1], widen(from[r][1]));
  }
}

// The dot products of a group, or of the half of it that begins with quad `q`, in 32 bits. Products
// of bytes are summed in 16 bits as far as they fit: unsigned codes up to 15 times signed ones up
// to 127 for eight quads, up to 31 for four, up to 63 for two.
template <Kind kind, int q, int R>
inline void dot_group(const uint8_t* record, const int8_t* codes, int64_t stride,
                      __m256i (&dots)[R][2]) {
  __m256i sums[R][2];
  Pair a, b;
  const auto plain = [&](int quad) {
    return Pair{load(record + 64 * quad), load(record + 64 * quad + 32)};
  };
  if constexpr (kind == kQ4 || kind == kQ4Min || kind == kQ5 || kind == kQ5Min) {
    constexpr bool five = kind == kQ5 || kind == kQ5Min;
    load_quads<kind, 0>(record, a, b);
    multiply_quad<true, R>(a, codes, stride, sums);
    multiply_quad<false, R>(b, codes + 16, stride, sums);
    load_quads<kind, 1>(record, a, b);
    multiply_quad<false, R>(a, codes + 4, stride, sums);
    multiply_quad<false, R>(b, codes + 20, stride, sums);
    if constexpr (five) widen_all<R>(sums, dots);
    load_quads<kind, 2>(record, a, b);
    multiply_quad<five, R>(a, codes + 8, stride, sums);
    multiply_quad<false, R>(b, codes + 24, stride, sums);
    load_quads<kind, 3>(record, a, b);
    multiply_quad<false, R>(a, codes + 12, stride, sums);
    multiply_quad<false, R>(b, codes + 28, stride, sums);
    if constexpr (five) {
      add_widened<R>(sums, dots);
    } else {
      widen_all<R>(sums, dots);
    }
  } else if constexpr (kind == kQ6) {
    multiply_quad<true, R>(plain(q), codes + 4 * q, stride, sums);
    multiply_quad<false, R>(plain(q + 1), codes + 4 * q + 4, stride, sums);
    widen_all<R>(sums, dots);
    multiply_quad<true, R>(plain(q + 2), codes + 4 * q + 8, stride, sums);
    multiply_quad<false, R>(plain(q + 3), codes + 4 * q + 12, stride, sums);
    add_widened<R>(sums, dots);
  } else {  // in halves of 4 bits: the high ones count sixteen
    const auto low = [&](int quad) {
      const Pair both = plain(quad);
      return Pair{low_half(both.first), low_half(both.second)};
    };
    const auto high = [&](int quad) {
      const Pair both = plain(quad);
      return Pair{high_half(both.first), high_half(both.second)};
    };
    multiply_quad<true, R>(high(0), codes, stride, sums);
    for (int quad = 1; quad < 8; ++quad)
      multiply_quad<false, R>(high(quad), codes + 4 * quad, stride, sums);
    for (int r = 0; r < R; ++r) {
      dots[r][0] = _mm256_madd_epi16(sums[r][0], _mm256_set1_epi16(16));
      dots[r][1] = _mm256_madd_epi16(sums[r][1], _mm256_set1_epi16(16));
    }
    multiply_quad<true, R>(low(0), codes, stride, sums);
    for (int quad = 1; quad < 8; ++quad)
      multiply_quad<false, R>(low(quad), codes + 4 * quad, stride, sums);
    add_widened<R>(sums, dots);
  }
}

template <Kind kind, int R>
void run_tile(const uint8_t* record, int64_t groups, Rows in, float* sums) {
  __m256 sum[R][2];
  for (int r = 0; r < R; ++r) {
    sum[r][0] = _mm256_loadu_ps(sums + r * kTile);
    sum[r][1] = _mm256_loadu_ps(sums + r * kTile + 8);
  }
  for (int64_t g = 0; g < groups; ++g, record += record_bytes(kind)) {
    fetch_ahead<kind>(record, in.prefetch);
    const int8_t* codes = in.codes + g * kGroup;
    __m256i dots[R][2];
    __m256 scale0, scale1, other0, other1;
    const auto add = [&](int r, __m256 first, __m256 second, float input_sum) {
      const float input_scale = in.scales[r * in.scale_stride + g];
      sum[r][0] = add_scaled<kind>(sum[r][0], dots[r][0], first, input_scale, input_sum);
      sum[r][1] = add_scaled<kind>(sum[r][1], dots[r][1], second, input_scale, input_sum);
    };
    load_scales<kind>(record, 0, scale0, scale1);
    if constexpr (has_min(kind) || kind == kQ6) load_scales<kind>(record, 1, other0, other1);
    dot_group<kind, 0, R>(record, codes, in.code_stride, dots);
    for (int r = 0; r < R; ++r) {
      const float* input_sums = in.sums + (r * in.scale_stride + g) * 2;
      add(r, scale0, scale1, input_sums[kind == kQ6]);
      if constexpr (has_min(kind)) {
        sum[r][0] = _mm256_fmadd_ps(other0, _mm256_set1_ps(input_sums[0]), sum[r][0]);
        sum[r][1] = _mm256_fmadd_ps(other1, _mm256_set1_ps(input_sums[0]), sum[r][1]);
      }
    }
    if constexpr (kind == kQ6) {  // the halves of a group have scales of their own
      dot_group<kind, 4, R>(record, codes, in.code_stride, dots);
      for (int r = 0; r < R; ++r) {
        const float* input_sums = in.sums + (r * in.scale_stride + g) * 2;
        add(r, other0, other1, input_sums[0] - input_sums[1]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    _mm256_storeu_ps(sums + r * kTile, sum[r][0]);
    _mm256_storeu_ps(sums + r * kTile + 8, sum[r][1]);
  }
}

}  // namespace
}  // namespace lectern
