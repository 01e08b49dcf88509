// The functions that Python calls, with C's names. They hold no Python object and need no lock of
// the interpreter; an `Engine` may be used by one thread at a time. Where a function returns a
// status, 0 is success.

#include <exception>
#include <new>

#include "decoder_step.h"
#include "pack.h"

using namespace lectern;

namespace {

constexpr int32_t kOutOfMemory = 1, kWrongArgument = 2, kFailed = 3;

// No exception may leave a function that C calls.
template <class Function>
int32_t guarded(const Function& function) {
  try {
    function();
    return 0;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (const std::exception&) {
    return kFailed;
  }
}

}  // namespace

extern "C" {

// What `structs.py` and `packed.py` must agree with.
void lectern_layout(int64_t* numbers) {
  const int64_t all[] = {sizeof(Segment), sizeof(Linear), sizeof(Layer),  sizeof(Model),
                         sizeof(Cache),   sizeof(CacheView), sizeof(Batch), kTile, kGroup};
  std::copy(std::begin(all), std::end(all), numbers);
}

int32_t lectern_can_attend(int64_t head_dim) { return can_attend(head_dim); }

// Null: no memory, or no thread, was to be had.
Engine* lectern_open(int32_t num_threads) {
  Engine* engine = nullptr;
  guarded([&] { engine = new Engine(num_threads); });
  return engine;
}

void lectern_close(Engine* engine) { delete engine; }

int32_t lectern_step(Engine* engine, const Model* model, const Cache* cache, const Batch* batch,
                     float* logits) {
  return guarded([&] { engine->step(*model, *cache, *batch, logits); });
}

int32_t lectern_multiply(Engine* engine, const Linear* linear, const float* x, int64_t num_rows,
                         float* out) {
  return guarded([&] { engine->multiply(*linear, x, num_rows, out); });
}

int32_t lectern_attend(Engine* engine, const CacheView* cache, const Batch* batch,
                       int64_t num_heads, const float* q, int64_t q_stride, const float* k,
                       int64_t k_stride, const float* v, int64_t v_stride, float scale,
                       int64_t window, float* out) {
  return guarded([&] {
    engine->attend(*cache, *batch, num_heads, q, q_stride, k, k_stride, v, v_stride, scale, window,
                   out);
  });
}

int64_t lectern_packed_bytes(int32_t kind, int64_t rows, int64_t columns) {
  return (rows + kTile - 1) / kTile * (columns / kGroup) * record_bytes(static_cast<Kind>(kind));
}

int32_t lectern_kind_of_source(int32_t source) { return kind_of_source(source); }

int32_t lectern_pack_blocks(int32_t source, const uint8_t* blocks, int64_t rows, int64_t columns,
                            const int64_t* row_map, uint8_t* out, int32_t num_threads) {
  if (kind_of_source(source) < 0 || num_threads < 1) return kWrongArgument;
  return guarded([&] { pack_blocks(source, blocks, rows, columns, row_map, out, num_threads); });
}

int32_t lectern_pack_floats(int32_t kind, const float* values, int64_t rows, int64_t columns,
                            uint8_t* out, int32_t num_threads) {
  if ((kind != kQ8 && kind != kQ4Min) || num_threads < 1) return kWrongArgument;
  return guarded([&] { pack_floats(kind, values, rows, columns, out, num_threads); });
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
