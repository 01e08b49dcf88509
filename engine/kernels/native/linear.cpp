#include "linear.h"

#include <algorithm>
#include <cstring>

#include "half.h"
#include "lanes.h"

// GCC's substitution of temporaries would compute all products of a group before it adds any up,
// and keep them in memory: a third slower.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("no-tree-ter")
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#include "tile_vnni.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "tile_avx2.h"
#else
#include "tile_plain.h"
#endif

namespace lectern {
namespace {

template <Kind kind>
void run_rows(const uint8_t* record, int64_t groups, Rows in, int64_t num_rows, float* sums) {
  constexpr int R = kRowsAtOnce<kind>;
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
    // Below this the inverse would overflow; as a product's input it is nothing.
    const bool is_nothing = end < 1e-30f;
    const float scale = is_nothing ? 0.0f : end / 127.0f;
    const float inverse = is_nothing ? 0.0f : 127.0f / end;
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
        const int code = code_at<kind>(record, lane, column);
        const float own = kind == kQ6 && column >= 16 ? other : scale;
        const float value = own * static_cast<float>(code - zero_point(kind));
        out[column] = has_min(kind) ? value + other : value;
      }
    }
  });
}

}  // namespace lectern
