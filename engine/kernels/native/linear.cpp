#include "linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "half.h"
#include "lanes.h"

#if defined(__AVX512F__) && defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define LECTERN_VNNI 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define LECTERN_AVX2 1
#endif
#if defined(LECTERN_VNNI) || defined(LECTERN_AVX2)
#include <immintrin.h>
#endif

// GCC's substitution of temporaries would compute all products of a group before it adds any up, and
// keep them in memory: a third slower.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("no-tree-ter")
#endif

namespace lectern {
namespace {

// `R` rows of inputs, from one group on.
struct Rows {
  const int8_t* codes;
  const float* scales;
  const float* sums;
  int64_t code_stride;
  int64_t scale_stride;
  int64_t prefetch;  // how far ahead weights are fetched, in bytes; 0: they are in the cache
};

// The hardware does not fetch ahead well when a tile is read several times before the next one.
template <Kind kind>
inline void fetch_ahead(const uint8_t* record, int64_t prefetch) {
  if (prefetch == 0) return;
  for (int64_t i = 0; i < record_bytes(kind); i += 64) __builtin_prefetch(record + prefetch + i, 0, 2);
}

inline int32_t load_quad(const int8_t* codes) {
  int32_t quad;
  std::memcpy(&quad, codes, 4);
  return quad;
}

#if defined(LECTERN_AVX2)

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

#elif defined(LECTERN_VNNI)

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

#else

// The same arithmetic in plain C++.
template <Kind kind>
inline int code_at(const uint8_t* record, int quad, int byte) {
  if constexpr (code_bytes(kind) == 512) {
    return record[64 * quad + byte];
  } else {
    const int both = record[64 * (quad & 3) + byte];
    int code = quad < 4 ? both & 15 : both >> 4;
    if constexpr (code_bytes(kind) == 320) code |= ((record[256 + byte] >> quad) & 1) << 4;
    return code;
  }
}

template <Kind kind>
inline float scale_at(const uint8_t* record, int index, int row) {
  return half_to_float(
      reinterpret_cast<const uint16_t*>(record + code_bytes(kind))[index * kTile + row]);
}

template <Kind kind, int R>
void run_tile(const uint8_t* record, int64_t groups, Rows in, float* sums) {
  constexpr int64_t stride = record_bytes(kind);
  for (int64_t g = 0; g < groups; ++g, record += stride) {
    for (int r = 0; r < R; ++r) {
      const int8_t* codes = in.codes + r * in.code_stride + g * kGroup;
      const float input_scale = in.scales[r * in.scale_stride + g];
      for (int row = 0; row < kTile; ++row) {
        int dot[2] = {0, 0}, code_sum[2] = {0, 0};
        for (int quad = 0; quad < 8; ++quad) {
          for (int i = 0; i < 4; ++i) {
            const int code = code_at<kind>(record, quad, row * 4 + i);
            dot[quad / 4] += code * codes[quad * 4 + i];
            code_sum[quad / 4] += codes[quad * 4 + i];
          }
        }
        const float scale = scale_at<kind>(record, 0, row);
        float& sum = sums[r * kTile + row];
        if constexpr (kind == kQ6) {
          const float other = scale_at<kind>(record, 1, row);
          sum += scale * input_scale * float(dot[0] - zero_point(kind) * code_sum[0]);
          sum += other * input_scale * float(dot[1] - zero_point(kind) * code_sum[1]);
        } else if constexpr (has_min(kind)) {
          sum += scale * input_scale * float(dot[0] + dot[1]);
          sum += scale_at<kind>(record, 1, row) * in.sums[(r * in.scale_stride + g) * 2];
        } else {
          const int less = zero_point(kind) * (code_sum[0] + code_sum[1]);
          sum += scale * input_scale * float(dot[0] + dot[1] - less);
        }
      }
    }
  }
}

#endif

template <Kind kind>
void run_rows(const uint8_t* record, int64_t groups, Rows in, int64_t num_rows, float* sums) {
  // Rows of inputs that share each load of the weights; more do not fit the registers.
#if defined(LECTERN_VNNI)
  constexpr int R = 8;
#else
  constexpr int R = kind == kQ8 ? 2 : 4;
#endif
  while (num_rows >= R) {
    run_tile<kind, R>(record, groups, in, sums);
    in.codes += R * in.code_stride;
    in.scales += R * in.scale_stride;
    in.sums += 2 * R * in.scale_stride;
    in.prefetch = 0;
    sums += R * kTile;
    num_rows -= R;
  }
  if constexpr (R > 4) {
    if (num_rows >= 4) {
      run_tile<kind, 4>(record, groups, in, sums);
      in.codes += 4 * in.code_stride;
      in.scales += 4 * in.scale_stride;
      in.sums += 8 * in.scale_stride;
      in.prefetch = 0;
      sums += 4 * kTile;
      num_rows -= 4;
    }
  }
  if constexpr (R >= 4) {
    if (num_rows == 3) run_tile<kind, 3>(record, groups, in, sums);
    if (num_rows == 2) run_tile<kind, 2>(record, groups, in, sums);
  }
  if (num_rows == 1) run_tile<kind, 1>(record, groups, in, sums);
}

// One tile times [row_begin, row_begin + num_rows), at most kRowBlock rows: sums [rows, 16].
template <Kind kind>
void multiply_tile(const uint8_t* tile, const Quantized& in, int64_t row_begin, int64_t num_rows,
                   float* sums) {
  const int64_t groups = in.columns / kGroup;
  Rows rows{in.codes + row_begin * in.columns, in.scales + row_begin * groups,
            in.sums + 2 * row_begin * groups, in.columns, groups,
            groups * record_bytes(kind)};
  std::memset(sums, 0, sizeof(float) * kTile * num_rows);
  run_rows<kind>(tile, groups, rows, num_rows, sums);
}

template <class Function>
void with_kind(int32_t kind, const Function& function) {
  switch (kind) {
    case kQ4: return function(std::integral_constant<Kind, kQ4>{});
    case kQ4Min: return function(std::integral_constant<Kind, kQ4Min>{});
    case kQ5: return function(std::integral_constant<Kind, kQ5>{});
    case kQ5Min: return function(std::integral_constant<Kind, kQ5Min>{});
    case kQ6: return function(std::integral_constant<Kind, kQ6>{});
    default: return function(std::integral_constant<Kind, kQ8>{});
  }
}

}  // namespace
}  // namespace lectern

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace lectern {

void quantize_row(const float* x, int64_t columns, int8_t* codes, float* scales, float* sums) {
  typedef int8_t Bytes __attribute__((vector_size(kLanes)));
  constexpr int kParts = kGroup / kLanes;
  const Lanes magic = fill(12582912.0f);  // adding and taking away 1.5 * 2^23 rounds
  for (int64_t g = 0; g < columns / kGroup; ++g, x += kGroup, codes += kGroup) {
    Lanes parts[kParts], largest = fill(0.0f);
    for (int i = 0; i < kParts; ++i) {
      parts[i] = load(x + i * kLanes);
      const Lanes size = parts[i] < 0.0f ? -parts[i] : parts[i];
      largest = size > largest ? size : largest;
    }
    const float end = largest_of(largest);
    const float scale = end / 127.0f;
    const float inverse = end > 0.0f ? 127.0f / end : 0.0f;
    Lanes half_sums[2] = {fill(0.0f), fill(0.0f)};
    for (int i = 0; i < kParts; ++i) {
      const Lanes rounded = (parts[i] * inverse + magic) - magic;
      half_sums[i * 2 / kParts] += rounded;
      const Bytes bytes =
          __builtin_convertvector(__builtin_convertvector(rounded, IntLanes), Bytes);
      std::memcpy(codes + i * kLanes, &bytes, sizeof bytes);
    }
    scales[g] = scale;
    sums[2 * g] = scale * sum_of(half_sums[0] + half_sums[1]);
    sums[2 * g + 1] = scale * sum_of(half_sums[0]);
  }
}

void multiply(const Linear& linear, const Quantized& in, int64_t row_begin, int64_t row_end,
              int64_t tile_begin, int64_t tile_end, float* out, bool accumulate) {
  // Tiles are gathered until each row has a run worth writing: rows of `out` may be pages apart.
  constexpr int64_t kGathered = 256;
  float sums[kGathered * kTile];
  for (int64_t begin = row_begin; begin < row_end; begin += kRowBlock) {
    const int64_t num_rows = std::min<int64_t>(kRowBlock, row_end - begin);
    const int64_t at_once = std::max<int64_t>(1, kGathered / num_rows);
    int64_t first_tile = 0;  // of the segment
    for (int s = 0; s < linear.num_segments; ++s) {
      const Segment& segment = linear.segments[s];
      const int64_t tiles = segment.rows / kTile;
      const int64_t to = std::min(tile_end, first_tile + tiles);
      for (int64_t tile = std::max(tile_begin, first_tile); tile < to; tile += at_once) {
        const int64_t count = std::min(at_once, to - tile);
        with_kind(segment.kind, [&](auto kind) {
          const int64_t bytes = record_bytes(kind) * static_cast<int64_t>(in.columns / kGroup);
          for (int64_t i = 0; i < count; ++i)
            multiply_tile<kind>(segment.data + (tile + i - first_tile) * bytes, in, begin,
                                num_rows, sums + i * num_rows * kTile);
        });
        const int64_t column = tile * kTile;
        const int64_t width = std::min(count * kTile, linear.rows - column);
        for (int64_t r = 0; r < num_rows; ++r) {
          float* to_row = out + (begin + r) * linear.rows + column;
          for (int64_t i = 0; i < width; ++i) {
            float value = sums[(i / kTile * num_rows + r) * kTile + i % kTile];
            if (linear.bias != nullptr) value += linear.bias[column + i];
            to_row[i] = accumulate ? to_row[i] + value : value;
          }
        }
      }
      first_tile += tiles;
    }
  }
}

void unpack_row(const Linear& linear, int64_t row, float* out) {
  const Segment* segment = linear.segments;
  while (row >= segment->rows) row -= (segment++)->rows;
  const int64_t groups = linear.columns / kGroup;
  const int lane = static_cast<int>(row % kTile);
  with_kind(segment->kind, [&](auto kind_constant) {
    constexpr Kind kind = kind_constant;
    const uint8_t* record = segment->data + row / kTile * groups * record_bytes(kind);
    for (int64_t g = 0; g < groups; ++g, record += record_bytes(kind), out += kGroup) {
      const auto* halves = reinterpret_cast<const uint16_t*>(record + code_bytes(kind));
      const float scale = half_to_float(halves[lane]);
      const float other = has_min(kind) || kind == kQ6 ? half_to_float(halves[kTile + lane]) : 0;
      for (int column = 0; column < kGroup; ++column) {
        const int quad = column / 4, byte = lane * 4 + column % 4;
        int code;
        if constexpr (code_bytes(kind) == 512) {
          code = record[64 * quad + byte];
        } else {
          const int both = record[64 * (quad & 3) + byte];
          code = quad < 4 ? both & 15 : both >> 4;
          if constexpr (code_bytes(kind) == 320) code |= ((record[256 + byte] >> quad) & 1) << 4;
        }
        const float own = kind == kQ6 && column >= 16 ? other : scale;
        const float value = own * static_cast<float>(code - zero_point(kind));
        out[column] = has_min(kind) ? value + other : value;
      }
    }
  });
}

}  // namespace lectern
