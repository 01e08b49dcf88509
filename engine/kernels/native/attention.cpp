#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "half.h"
#include "lanes.h"

namespace lectern {
namespace {

constexpr int kKeys = 32;  // a tile of keys and values in float32 stays in the first-level cache
constexpr float kNothing = -std::numeric_limits<float>::infinity();

template <class Element>
inline void widen(const Element* from, int64_t count, float* to) {
  if constexpr (sizeof(Element) == 4) {
    std::memcpy(to, from, count * sizeof(float));
  } else {
#if defined(__F16C__) && defined(__AVX__)
    for (int64_t i = 0; i < count; i += 8) {
      _mm256_storeu_ps(
          to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
#else
    for (int64_t i = 0; i < count; ++i) to[i] = half_to_float(from[i]);
#endif
  }
}

// scores[key] = q . k for a whole tile; `vectors` = head_dim / 8.
template <int vectors>
inline void score_tile(const float* q, const float* keys, int num_keys, int64_t head_dim,
                       float scale, float* scores) {
  const int count = vectors ? vectors : static_cast<int>(head_dim / kLanes);
  for (int first = 0; first < num_keys; first += kLanes) {
    Lanes dots[kLanes];
    for (int i = 0; i < kLanes; ++i) dots[i] = fill(0.0f);
    const float* base = keys + first * head_dim;
    for (int d = 0; d < count; ++d) {
      const Lanes part = load(q + d * kLanes);
      for (int i = 0; i < kLanes; ++i) dots[i] += part * load(base + i * head_dim + d * kLanes);
    }
    store(scores + first, sums_of(dots) * scale);
  }
}

template <int vectors>
inline void add_values(const float* weights, const float* values, int num_keys, int64_t head_dim,
                       float* sums) {
  if constexpr (vectors != 0) {
    Lanes total[vectors];
    for (int d = 0; d < vectors; ++d) total[d] = load(sums + d * kLanes);
    for (int key = 0; key < num_keys; ++key) {
      const Lanes weight = fill(weights[key]);
      for (int d = 0; d < vectors; ++d)
        total[d] += weight * load(values + key * head_dim + d * kLanes);
    }
    for (int d = 0; d < vectors; ++d) store(sums + d * kLanes, total[d]);
  } else {
    for (int64_t d = 0; d < head_dim; d += kLanes) {
      Lanes total = load(sums + d);
      for (int key = 0; key < num_keys; ++key)
        total += fill(weights[key]) * load(values + key * head_dim + d);
      store(sums + d, total);
    }
  }
}

// One row against the tile of keys [tile, tile + kKeys), of which it sees [first, last).
template <int vectors>
void add_tile(const float* q, const float* keys, const float* values, int64_t tile, int64_t first,
              int64_t last, int64_t head_dim, float scale, float* partial) {
  alignas(32) float scores[kKeys];
  score_tile<vectors>(q, keys, kKeys, head_dim, scale, scores);
  Lanes top = fill(kNothing);
  if (tile < first || tile + kKeys > last) {
    for (int i = 0; i < kKeys; ++i)
      if (tile + i < first || tile + i >= last) scores[i] = kNothing;
  }
  for (int i = 0; i < kKeys; i += kLanes) {
    const Lanes s = load(scores + i);
    top = s > top ? s : top;
  }
  float& largest = partial[head_dim];
  float& total = partial[head_dim + 1];
  const float now = std::max(largest, largest_of(top));
  if (now > largest) {
    const float fade = largest == kNothing ? 0.0f : exponential(largest - now);
    for (int64_t d = 0; d < head_dim; d += kLanes) store(partial + d, load(partial + d) * fade);
    total *= fade;
    largest = now;
  }
  Lanes sum = fill(0.0f);
  for (int i = 0; i < kKeys; i += kLanes) {
    const Lanes weight = exponential(load(scores + i) - now);
    store(scores + i, weight);
    sum += weight;
  }
  total += sum_of(sum);
  const int end = static_cast<int>(std::min<int64_t>(kKeys, last - tile));
  add_values<vectors>(scores, values, end, head_dim, partial);
}

template <class Element, int vectors>
void attend(const CacheView& cache, const Span& span, int64_t segment, int64_t kv_head,
            int64_t group, const float* q, int64_t q_stride, int64_t row_begin, int64_t row_end,
            float scale, int64_t window, float* partials) {
  const int64_t head_dim = cache.head_dim;
  const int64_t size = partial_size(head_dim);
  const int64_t slot_size = cache.num_kv_heads * head_dim;
  const auto* all_keys = static_cast<const Element*>(cache.keys) + kv_head * head_dim;
  const auto* all_values = static_cast<const Element*>(cache.values) + kv_head * head_dim;
  alignas(64) float keys[kKeys * kMaxHeadDim];
  alignas(64) float values[kKeys * kMaxHeadDim];

  const int64_t num_partials = (row_end - row_begin) * group;
  for (int64_t i = 0; i < num_partials; ++i) {
    float* partial = partials + i * size;
    std::memset(partial, 0, head_dim * sizeof(float));
    partial[head_dim] = kNothing;
    partial[head_dim + 1] = 0.0f;
  }
  const int64_t first_position = span.context_len - span.num_queries;
  const int64_t begin = segment * kSegment;
  const int64_t end = std::min(begin + kSegment, first_position + row_end);
  for (int64_t tile = begin; tile < end; tile += kKeys) {
    // Positions of the first and the last row; a row sees (position - window, position].
    if (window > 0 && tile + kKeys <= first_position + row_begin - window + 1) continue;
    const int64_t num_keys = std::min<int64_t>(kKeys, span.context_len - tile);
    const int32_t* block = span.blocks + tile / cache.block_size;
    for (int64_t i = 0, in_block = tile % cache.block_size; i < num_keys; ++i) {
      const int64_t at = (static_cast<int64_t>(*block) * cache.block_size + in_block) * slot_size;
      const int64_t size = vectors ? vectors * kLanes : head_dim;
      widen(all_keys + at, size, keys + i * head_dim);
      widen(all_values + at, size, values + i * head_dim);
      if (++in_block == cache.block_size) {
        in_block = 0;
        ++block;
      }
    }
    std::memset(keys + num_keys * head_dim, 0, (kKeys - num_keys) * head_dim * sizeof(float));
    for (int64_t row = row_begin; row < row_end; ++row) {
      const int64_t position = first_position + row;
      const int64_t first = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
      if (position < tile || first >= tile + kKeys) continue;
      for (int64_t h = 0; h < group; ++h) {
        const float* query =
            q + (span.query_start + row) * q_stride + (kv_head * group + h) * head_dim;
        add_tile<vectors>(query, keys, values, tile, first, position + 1, head_dim, scale,
                          partials + ((row - row_begin) * group + h) * size);
      }
    }
  }
}

}  // namespace

void write_cache(const CacheView& cache, int64_t slot, const float* key, const float* value) {
  const int64_t size = static_cast<int64_t>(cache.num_kv_heads) * cache.head_dim;
  if (!cache.is_half) {
    std::memcpy(static_cast<float*>(cache.keys) + slot * size, key, size * sizeof(float));
    std::memcpy(static_cast<float*>(cache.values) + slot * size, value, size * sizeof(float));
    return;
  }
  auto* keys = static_cast<uint16_t*>(cache.keys) + slot * size;
  auto* values = static_cast<uint16_t*>(cache.values) + slot * size;
  for (int64_t i = 0; i < size; ++i) {
    keys[i] = float_to_half(key[i]);
    values[i] = float_to_half(value[i]);
  }
}

void attend_segment(const CacheView& cache, const Span& span, int64_t segment, int64_t kv_head,
                    int64_t group, const float* q, int64_t q_stride, int64_t row_begin,
                    int64_t row_end, float scale, int64_t window, float* partials) {
  const auto with = [&](auto element, auto vectors) {
    attend<decltype(element), decltype(vectors)::value>(cache, span, segment, kv_head, group, q,
                                                        q_stride, row_begin, row_end, scale,
                                                        window, partials);
  };
  const auto with_element = [&](auto element) {
    if (cache.head_dim == 64) {
      with(element, std::integral_constant<int, 8>{});
    } else {
      with(element, std::integral_constant<int, 0>{});
    }
  };
  if (cache.is_half) {
    with_element(uint16_t{});
  } else {
    with_element(float{});
  }
}

void merge_partial(float* into, const float* later, int64_t head_dim) {
  const float top = std::max(into[head_dim], later[head_dim]);
  if (top == kNothing) return;
  const float mine = into[head_dim] == kNothing ? 0.0f : exponential(into[head_dim] - top);
  const float other = later[head_dim] == kNothing ? 0.0f : exponential(later[head_dim] - top);
  for (int64_t d = 0; d < head_dim; d += kLanes)
    store(into + d, load(into + d) * mine + load(later + d) * other);
  into[head_dim] = top;
  into[head_dim + 1] = into[head_dim + 1] * mine + later[head_dim + 1] * other;
}

void finish_partial(const float* partial, int64_t head_dim, float* out) {
  const float inverse = 1.0f / partial[head_dim + 1];
  for (int64_t d = 0; d < head_dim; d += kLanes) store(out + d, load(partial + d) * inverse);
}

}  // namespace lectern
