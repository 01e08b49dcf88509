#include "pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "half.h"
#include "threads.h"

namespace lectern {
namespace {

// 32 columns of one row.
struct Group {
  uint8_t codes[kGroup];
  uint16_t scale;  // of all columns, in kQ6 of the first half
  uint16_t other;  // the minimum, in kQ6 the second half's scale
};

inline uint16_t read16(const uint8_t* from) {
  uint16_t value;
  std::memcpy(&value, from, 2);
  return value;
}

inline uint32_t read32(const uint8_t* from) {
  uint32_t value;
  std::memcpy(&value, from, 4);
  return value;
}

void read_halves(const uint8_t* bytes, Group& group) {
  for (int i = 0; i < 16; ++i) {
    group.codes[i] = bytes[i] & 15;
    group.codes[i + 16] = bytes[i] >> 4;
  }
}

void add_fifth_bits(uint32_t bits, Group& group) {
  for (int i = 0; i < kGroup; ++i) group.codes[i] |= ((bits >> i) & 1) << 4;
}

// The scale and the minimum, 6 bits each, of part `index` of a K block.
void read_part(const uint8_t* packed, int index, int& scale, int& minimum) {
  if (index < 4) {
    scale = packed[index] & 63;
    minimum = packed[index + 4] & 63;
  } else {
    scale = (packed[index + 4] & 15) | (packed[index - 4] >> 6) << 4;
    minimum = (packed[index + 4] >> 4) | (packed[index] >> 6) << 4;
  }
}

// Group `g` of a row whose blocks begin at `row`.
void read_group(int32_t source, const uint8_t* row, int64_t g, Group& group) {
  group.other = 0;
  switch (source) {
    case kSourceQ4_0: {
      const uint8_t* block = row + g * 18;
      group.scale = read16(block);
      return read_halves(block + 2, group);
    }
    case kSourceQ4_1: {
      const uint8_t* block = row + g * 20;
      group.scale = read16(block);
      group.other = read16(block + 2);
      return read_halves(block + 4, group);
    }
    case kSourceQ5_0: {
      const uint8_t* block = row + g * 22;
      group.scale = read16(block);
      read_halves(block + 6, group);
      return add_fifth_bits(read32(block + 2), group);
    }
    case kSourceQ5_1: {
      const uint8_t* block = row + g * 24;
      group.scale = read16(block);
      group.other = read16(block + 2);
      read_halves(block + 8, group);
      return add_fifth_bits(read32(block + 4), group);
    }
    case kSourceQ8_0: {
      const uint8_t* block = row + g * 34;
      group.scale = read16(block);
      for (int i = 0; i < kGroup; ++i) group.codes[i] = block[2 + i] ^ 128;  // + 128
      return;
    }
    case kSourceQ4_K:
    case kSourceQ5_K: {
      const bool is_five = source == kSourceQ5_K;
      const uint8_t* block = row + g / 8 * (is_five ? 176 : 144);
      const int part = static_cast<int>(g % 8);
      int scale, minimum;
      read_part(block + 4, part, scale, minimum);
      group.scale = float_to_half(half_to_float(read16(block)) * static_cast<float>(scale));
      group.other =
          float_to_half(-half_to_float(read16(block + 2)) * static_cast<float>(minimum));
      const uint8_t* codes = block + (is_five ? 48 : 16) + part / 2 * 32;
      for (int i = 0; i < kGroup; ++i) {
        group.codes[i] = part % 2 ? codes[i] >> 4 : codes[i] & 15;
        if (is_five) group.codes[i] |= ((block[16 + i] >> part) & 1) << 4;
      }
      return;
    }
    default: {  // kSourceQ6_K
      const uint8_t* block = row + g / 8 * 210;
      const int part = static_cast<int>(g % 8), quarter = part % 4;
      const uint8_t* low = block + part / 4 * 64 + quarter % 2 * 32;
      const uint8_t* high = block + 128 + part / 4 * 32;
      const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
      const float scale = half_to_float(read16(block + 208));
      group.scale = float_to_half(scale * static_cast<float>(scales[2 * part]));
      group.other = float_to_half(scale * static_cast<float>(scales[2 * part + 1]));
      for (int i = 0; i < kGroup; ++i) {
        const int code = quarter < 2 ? low[i] & 15 : low[i] >> 4;
        group.codes[i] = static_cast<uint8_t>(code | ((high[i] >> (2 * quarter)) & 3) << 4);
      }
    }
  }
}

int64_t row_bytes(int32_t source, int64_t columns) {
  switch (source) {
    case kSourceQ4_0: return columns / 32 * 18;
    case kSourceQ4_1: return columns / 32 * 20;
    case kSourceQ5_0: return columns / 32 * 22;
    case kSourceQ5_1: return columns / 32 * 24;
    case kSourceQ8_0: return columns / 32 * 34;
    case kSourceQ4_K: return columns / 256 * 144;
    case kSourceQ5_K: return columns / 256 * 176;
    default: return columns / 256 * 210;
  }
}

// Row `lane` of a tile.
void put_group(Kind kind, const Group& group, int lane, uint8_t* record) {
  for (int quad = 0; quad < 8; ++quad) {
    for (int i = 0; i < 4; ++i) {
      const uint8_t code = group.codes[quad * 4 + i];
      const int byte = lane * 4 + i;
      if (code_bytes(kind) == 512) {
        record[64 * quad + byte] = code;
        continue;
      }
      record[64 * (quad & 3) + byte] |= quad < 4 ? code & 15 : (code & 15) << 4;
      if (code_bytes(kind) == 320) record[256 + byte] |= (code >> 4) << quad;
    }
  }
  auto* halves = reinterpret_cast<uint16_t*>(record + code_bytes(kind));
  halves[lane] = group.scale;
  if (record_bytes(kind) - code_bytes(kind) == 64) halves[kTile + lane] = group.other;
}

// Calls read(row, group number, group) for every group of every row and packs what it gives.
void pack(Kind kind, int64_t rows, int64_t columns, uint8_t* out, int num_threads,
          const std::function<void(int64_t, int64_t, Group&)>& read) {
  const int64_t groups = columns / kGroup, tiles = (rows + kTile - 1) / kTile;
  const auto work = [&](int64_t begin, int64_t end) {
    Group group;
    std::memset(out + begin * groups * record_bytes(kind), 0,
                (end - begin) * groups * record_bytes(kind));
    for (int64_t tile = begin; tile < end; ++tile)
      for (int lane = 0; lane < kTile && tile * kTile + lane < rows; ++lane)
        for (int64_t g = 0; g < groups; ++g) {
          read(tile * kTile + lane, g, group);
          put_group(kind, group, lane, out + (tile * groups + g) * record_bytes(kind));
        }
  };
  // Shares of whole tiles; `work` allocates nothing and does not throw.
  ThreadPool pool(num_threads);
  const int64_t share = (tiles + num_threads - 1) / num_threads;
  WorkQueue queue;
  pool.run([&](int) { queue.each(tiles, share, work); });
}

void round_group(Kind kind, const float* values, Group& group) {
  const auto [least, most] = std::minmax_element(values, values + kGroup);
  group.other = 0;
  if (kind == kQ8) {
    group.scale = float_to_half(std::max(std::fabs(*least), std::fabs(*most)) / 127.0f);
  } else {
    group.other = float_to_half(*least);
    group.scale = float_to_half((*most - half_to_float(group.other)) / 15.0f);
  }
  const float scale = half_to_float(group.scale), minimum = half_to_float(group.other);
  const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  const int middle = zero_point(kind), largest = kind == kQ8 ? 255 : 15;
  for (int i = 0; i < kGroup; ++i) {
    const int code = static_cast<int>(std::nearbyint((values[i] - minimum) * inverse)) + middle;
    group.codes[i] = static_cast<uint8_t>(std::clamp(code, kind == kQ8 ? 1 : 0, largest));
  }
}

}  // namespace

int32_t kind_of_source(int32_t source) {
  switch (source) {
    case kSourceQ4_0: return kQ4;
    case kSourceQ4_1: case kSourceQ4_K: return kQ4Min;
    case kSourceQ5_0: return kQ5;
    case kSourceQ5_1: case kSourceQ5_K: return kQ5Min;
    case kSourceQ6_K: return kQ6;
    case kSourceQ8_0: return kQ8;
    default: return -1;
  }
}

void pack_blocks(int32_t source, const uint8_t* blocks, int64_t rows, int64_t columns,
                 const int64_t* row_map, uint8_t* out, int num_threads) {
  const int64_t bytes = row_bytes(source, columns);
  pack(static_cast<Kind>(kind_of_source(source)), rows, columns, out, num_threads,
       [&](int64_t row, int64_t g, Group& group) {
         read_group(source, blocks + (row_map ? row_map[row] : row) * bytes, g, group);
       });
}

void pack_floats(int32_t kind, const float* values, int64_t rows, int64_t columns, uint8_t* out,
                 int num_threads) {
  pack(static_cast<Kind>(kind), rows, columns, out, num_threads,
       [&](int64_t row, int64_t g, Group& group) {
         round_group(static_cast<Kind>(kind), values + row * columns + g * kGroup, group);
       });
}

}  // namespace lectern
