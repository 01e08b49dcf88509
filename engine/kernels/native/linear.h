// Products of quantized inputs with packed weights.
#pragma once

#include "packed.h"

namespace lectern {

// One row of `columns` floats to int8 with a scale for each 32 of them.
void quantize_row(const float* x, int64_t columns, int8_t* codes, float* scales, float* sums);

inline void quantize_row(const float* x, const Quantized& into, int64_t row) {
  const int64_t groups = into.columns / kGroup;
  quantize_row(x, into.columns, into.codes + row * into.columns, into.scales + row * groups,
               into.sums + 2 * row * groups);
}

// Rows of inputs that a thread takes through a tile at once: they stay in the second-level cache.
constexpr int kRowBlock = 64;

inline int64_t num_tiles(const Linear& linear) {
  int64_t tiles = 0;
  for (int i = 0; i < linear.num_segments; ++i) tiles += linear.segments[i].rows / kTile;
  return tiles;
}

// out[row, :] = in[row, :] @ weight.T (+ bias), or += with `accumulate`, for input rows
// [row_begin, row_end) and weight tiles [tile_begin, tile_end). `out` has `linear.rows` columns.
//
// The sums of an output are taken in one order, whatever rows are computed together: the same
// input row gives the same bits in every batch.
void multiply(const Linear& linear, const Quantized& in, int64_t row_begin, int64_t row_end,
              int64_t tile_begin, int64_t tile_end, float* out, bool accumulate);

// Row `row` of a weight, as floats.
void unpack_row(const Linear& linear, int64_t row, float* out);

}  // namespace lectern
