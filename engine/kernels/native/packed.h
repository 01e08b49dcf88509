// Weights of 4, 5, 6 or 8 bits, in the order in which the products read them.
//
// A matrix [rows, columns] is cut into tiles of 16 rows, a tile into groups of 32 columns. A group
// of a tile is one record: codes, then 16 scales, then (in kinds with a minimum) 16 minima, both
// float16. weight = scale * (code - zero point), or scale * code + minimum.
//
// Codes are unsigned. A vector of 64 bytes holds 4 columns (a quad) of all 16 rows, row by row:
// the operand of an instruction that multiplies unsigned by signed bytes and adds fours of them.
//   4 bits: 4 vectors; in vector j the low halves are quad j, the high halves quad j + 4.
//   5 bits: the same for the low 4 bits, and one vector whose bit q is the fifth bit of quad q.
//   8 bits: 8 vectors, one a quad. Codes of 6 bits are kept like this as well.
// Kind kQ6 has scales for each 16 columns: 16 for the first half of the group, 16 for the second.
#pragma once

#include <cstdint>

namespace lectern {

constexpr int kTile = 16;
constexpr int kGroup = 32;

enum Kind : int32_t { kQ4 = 0, kQ4Min = 1, kQ5 = 2, kQ5Min = 3, kQ6 = 4, kQ8 = 5 };

constexpr int code_bytes(Kind kind) {
  return kind <= kQ4Min ? 256 : kind <= kQ5Min ? 320 : 512;
}
constexpr bool has_min(Kind kind) { return kind == kQ4Min || kind == kQ5Min; }
constexpr int zero_point(Kind kind) {
  return kind == kQ4 ? 8 : kind == kQ5 ? 16 : kind == kQ6 ? 32 : kind == kQ8 ? 128 : 0;
}
constexpr int record_bytes(Kind kind) {
  return code_bytes(kind) + (has_min(kind) || kind == kQ6 ? 64 : 32);
}

// The code of one row and column (0 to 31) of a record.
template <Kind kind>
inline int code_at(const uint8_t* record, int row, int column) {
  const int quad = column / 4, byte = row * 4 + column % 4;
  if constexpr (code_bytes(kind) == 512) {
    return record[64 * quad + byte];
  } else {
    const int both = record[64 * (quad % 4) + byte];
    int code = quad < 4 ? both & 15 : both >> 4;
    if constexpr (code_bytes(kind) == 320) code |= ((record[256 + byte] >> quad) & 1) << 4;
    return code;
  }
}

// Rows of one kind. `rows` is a multiple of kTile; those past the weight's end are zero.
struct Segment {
  const uint8_t* data;
  int64_t rows;
  int32_t kind;
};

// Weights that take the same input, one below the other.
struct Linear {
  const Segment* segments;
  int32_t num_segments;
  int32_t columns;  // a multiple of kGroup
  int64_t rows;     // without what the last segment was filled up with
  const float* bias;  // [rows] or null
};

// Inputs of products: each 32 columns of a row are int8 with a scale of their own.
// value = scale * code, codes in [-127, 127]; `sums` are scale * (sum of the 32
// codes), then scale * (sum of the first 16).
struct Quantized {
  int8_t* codes;   // [T, columns]
  float* scales;   // [T, columns / 32]
  float* sums;     // [T, columns / 32, 2]
  int32_t columns;
};

}  // namespace lectern
