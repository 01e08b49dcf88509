// Causal attention over a paged cache of keys and values.
#pragma once

#include <cstdint>

namespace lectern {

// One layer of the cache: slots of [num_kv_heads, head_dim], float16 or float32.
struct CacheView {
  void* keys;
  void* values;
  int32_t is_half;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t block_size;
};

// A sequence's part of a flat step: `num_queries` rows from `query_start` on, at the end of a
// context of `context_len` tokens that lie in `blocks`.
struct Span {
  int64_t query_start;
  int64_t num_queries;
  int64_t context_len;
  const int32_t* blocks;
};

constexpr int64_t kMaxHeadDim = 256;

constexpr bool can_attend(int64_t head_dim) { return head_dim % 8 == 0 && head_dim <= kMaxHeadDim; }

// Keys are taken in segments, which give partial results that are then merged in order. Segments
// begin at fixed places of the context, so that a row's sums do not depend on what is computed
// with it, and those of one row can be computed by several threads.
constexpr int kSegment = 512;

// What a segment gives for one row and head: the weighted sum of values, then the largest score
// and the sum of weights.
constexpr int64_t partial_size(int64_t head_dim) { return head_dim + 2; }

void write_cache(const CacheView& cache, int64_t slot, const float* key, const float* value);

// Query rows [row_begin, row_end) of the span (counted from its first), all heads of `kv_head`,
// over segment `segment`. q is [T, num_heads, head_dim]. Writes one partial a row and head to
// `partials` [rows, heads of the group, partial_size].
void attend_segment(const CacheView& cache, const Span& span, int64_t segment, int64_t kv_head,
                    int64_t group, const float* q, int64_t q_stride, int64_t row_begin,
                    int64_t row_end, float scale, int64_t window, float* partials);

// Adds a later segment's partial to `into`.
void merge_partial(float* into, const float* later, int64_t head_dim);

// The attention's result [head_dim] from all of a row's segments.
void finish_partial(const float* partial, int64_t head_dim, float* out);

}  // namespace lectern
