// The functions that Python calls, with C's names. They hold no Python object and need no lock of
// the interpreter; an `Engine` may be used by one thread at a time.

#include "decoder_step.h"
#include "pack.h"

using namespace lectern;

extern "C" {

Engine* lectern_open(int32_t num_threads) { return new Engine(num_threads); }

void lectern_close(Engine* engine) { delete engine; }

void lectern_step(Engine* engine, const Model* model, const Cache* cache, const Batch* batch,
                  float* logits) {
  engine->step(*model, *cache, *batch, logits);
}

void lectern_multiply(Engine* engine, const Linear* linear, const float* x, int64_t num_rows,
                      float* out) {
  engine->multiply(*linear, x, num_rows, out);
}

void lectern_attend(Engine* engine, const CacheView* cache, const Batch* batch, int64_t num_heads,
                    const float* q, int64_t q_stride, const float* k, int64_t k_stride,
                    const float* v, int64_t v_stride, float scale, int64_t window, float* out) {
  engine->attend(*cache, *batch, num_heads, q, q_stride, k, k_stride, v, v_stride, scale, window,
                 out);
}

int64_t lectern_packed_bytes(int32_t kind, int64_t rows, int64_t columns) {
  return (rows + kTile - 1) / kTile * (columns / kGroup) * record_bytes(static_cast<Kind>(kind));
}

int32_t lectern_kind_of_source(int32_t source) { return kind_of_source(source); }

void lectern_pack_blocks(int32_t source, const uint8_t* blocks, int64_t rows, int64_t columns,
                         const int64_t* row_map, uint8_t* out, int32_t num_threads) {
  pack_blocks(source, blocks, rows, columns, row_map, out, num_threads);
}

void lectern_pack_floats(int32_t kind, const float* values, int64_t rows, int64_t columns,
                         uint8_t* out, int32_t num_threads) {
  pack_floats(kind, values, rows, columns, out, num_threads);
}

void lectern_unpack_rows(const Linear* linear, const int64_t* rows, int64_t num_rows, float* out) {
  for (int64_t i = 0; i < num_rows; ++i)
    unpack_row(*linear, rows[i], out + i * linear->columns);
}

void lectern_quantize(const float* x, int64_t num_rows, int64_t columns, int8_t* codes,
                      float* scales, float* sums) {
  const Quantized into{codes, scales, sums, static_cast<int32_t>(columns)};
  for (int64_t row = 0; row < num_rows; ++row) quantize_row(x + row * columns, into, row);
}

}  // extern "C"
