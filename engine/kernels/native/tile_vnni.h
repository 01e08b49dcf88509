// Products of a tile with 512-bit registers and the byte dot products of AVX-512 VNNI.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "tile.h"

namespace lectern {
namespace {

// Rows of inputs that share each load of the weights; more do not fit the registers.
template <Kind kind>
constexpr int kRowsAtOnce = 8;

inline __m512i load(const uint8_t* data) { return _mm512_loadu_si512(data); }

template <int q>
inline __m512i fifth_bit(__m512i bits) {
  const __m512i moved = q < 4 ? _mm512_slli_epi16(bits, q < 4 ? 4 - q : 0)
                              : _mm512_srli_epi16(bits, q < 4 ? 0 : q - 4);
  return _mm512_and_si512(moved, _mm512_set1_epi8(16));
}

template <Kind kind, int j>
inline void load_quads(const uint8_t* record, __m512i& a, __m512i& b) {
  if constexpr (code_bytes(kind) == 512) {
    a = load(record + 64 * j);
    b = load(record + 64 * (j + 4));
  } else {
    const __m512i v = load(record + 64 * j), mask = _mm512_set1_epi8(15);
    a = _mm512_and_si512(v, mask);
    b = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
    if constexpr (code_bytes(kind) == 320) {
      const __m512i bits = load(record + 256);
      a = _mm512_or_si512(a, fifth_bit<j>(bits));
      b = _mm512_or_si512(b, fifth_bit<j + 4>(bits));
    }
  }
}

template <Kind kind>
inline __m512 load_scales(const uint8_t* record, int index) {
  const auto* scales = reinterpret_cast<const __m256i*>(record + code_bytes(kind)) + index;
  return _mm512_cvtph_ps(_mm256_loadu_si256(scales));
}

template <Kind kind>
inline __m512 add_scaled(__m512 sum, __m512i dot, __m512 scale, float input_scale,
                         float input_sum) {
  const __m512 value = _mm512_cvtepi32_ps(dot);
  __m512 term;
  if constexpr (has_min(kind)) {
    term = _mm512_mul_ps(value, _mm512_set1_ps(input_scale));
  } else {
    term = _mm512_fmsub_ps(value, _mm512_set1_ps(input_scale),
                           _mm512_set1_ps(zero_point(kind) * input_sum));
  }
  return _mm512_fmadd_ps(scale, term, sum);
}

template <Kind kind, int R>
void run_tile(const uint8_t* record, int64_t groups, Rows in, float* sums) {
  constexpr int64_t stride = record_bytes(kind);
  __m512 sum[R];
  for (int r = 0; r < R; ++r) sum[r] = _mm512_loadu_ps(sums + r * kTile);
  for (int64_t g = 0; g < groups; ++g, record += stride) {
    fetch_ahead<kind>(record, in.prefetch);
    __m512i dot[R], more[R];
    for (int r = 0; r < R; ++r) dot[r] = more[r] = _mm512_setzero_si512();
    const auto step = [&](auto index) {
      constexpr int j = decltype(index)::value;
      __m512i a, b;
      load_quads<kind, j>(record, a, b);
      for (int r = 0; r < R; ++r) {
        const int8_t* codes = in.codes + r * in.code_stride + g * kGroup + 4 * j;
        dot[r] = _mm512_dpbusd_epi32(dot[r], a, _mm512_set1_epi32(load_quad(codes)));
        more[r] = _mm512_dpbusd_epi32(more[r], b, _mm512_set1_epi32(load_quad(codes + 16)));
      }
    };
    step(std::integral_constant<int, 0>{});
    step(std::integral_constant<int, 1>{});
    step(std::integral_constant<int, 2>{});
    step(std::integral_constant<int, 3>{});
    const __m512 scale = load_scales<kind>(record, 0);
    __m512 other = scale;
    if constexpr (has_min(kind) || kind == kQ6) other = load_scales<kind>(record, 1);
    for (int r = 0; r < R; ++r) {
      const float input_scale = in.scales[r * in.scale_stride + g];
      const float* input_sums = in.sums + (r * in.scale_stride + g) * 2;
      if constexpr (kind == kQ6) {  // the halves of a group have scales of their own
        sum[r] = add_scaled<kind>(sum[r], dot[r], scale, input_scale, input_sums[1]);
        sum[r] = add_scaled<kind>(sum[r], more[r], other, input_scale,
                                  input_sums[0] - input_sums[1]);
      } else {
        const __m512i whole = _mm512_add_epi32(dot[r], more[r]);
        sum[r] = add_scaled<kind>(sum[r], whole, scale, input_scale, input_sums[0]);
        if constexpr (has_min(kind))
          sum[r] = _mm512_fmadd_ps(other, _mm512_set1_ps(input_sums[0]), sum[r]);
      }
    }
  }
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(sums + r * kTile, sum[r]);
}

}  // namespace
}  // namespace lectern
