// From blocks of a GGUF file, or from floats, to packed weights.
#pragma once

#include "packed.h"

namespace lectern {

// GGML's numbers of the kinds of blocks that can be packed as they are.
enum Source : int32_t {
  kSourceQ4_0 = 2,
  kSourceQ4_1 = 3,
  kSourceQ5_0 = 6,
  kSourceQ5_1 = 7,
  kSourceQ8_0 = 8,
  kSourceQ4_K = 12,
  kSourceQ5_K = 13,
  kSourceQ6_K = 14,
};

// The packed kind that holds `source`, or -1. The codes are kept exactly; so are the scales, except
// those of Q4_K, Q5_K and Q6_K, which are products that are rounded to float16.
int32_t kind_of_source(int32_t source);

// Packs `rows` rows of GGUF blocks; row i of the result is row `row_map[i]` of the source, or row i
// if `row_map` is null. `out` has ceil(rows / kTile) * columns / kGroup records.
void pack_blocks(int32_t source, const uint8_t* blocks, int64_t rows, int64_t columns,
                 const int64_t* row_map, uint8_t* out, int num_threads);

// Rounds floats [rows, columns] to `kind` (kQ8 or kQ4Min), for each group of 32 columns the nearest
// codes of its range.
void pack_floats(int32_t kind, const float* values, int64_t rows, int64_t columns, uint8_t* out,
                 int num_threads);

}  // namespace lectern
