// Products of a tile in plain C++, for any processor.
#pragma once

#include <type_traits>

#include "tile.h"

namespace lectern {
namespace {

// Rows of inputs that share each load of the weights; more do not fit the registers.
template <Kind kind>
constexpr int kRowsAtOnce = 4;

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
            const int code = code_at<kind>(record, row, quad * 4 + i);
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

}  // namespace
}  // namespace lectern
