// What the products of one tile have in common. Exactly one of tile_avx2.h, tile_vnni.h (AVX-512)
// and tile_plain.h is compiled; each has:
//
//   template <Kind kind, int R>
//   void run_tile(const uint8_t* record, int64_t groups, Rows in, float* sums);
//
// adds to `sums` [R, 16] the products of `groups` records with R rows of inputs. All do the same:
// integer dot products of a group, exactly; then, in the order of the groups, one multiplication
// with the scales and one addition a sum.
#pragma once

#include <cstring>

#include "half.h"
#include "packed.h"

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
  for (int64_t i = 0; i < record_bytes(kind); i += 64)
    __builtin_prefetch(record + prefetch + i, 0, 2);
}

inline int32_t load_quad(const int8_t* codes) {
  int32_t quad;
  std::memcpy(&quad, codes, 4);
  return quad;
}

}  // namespace
}  // namespace lectern
