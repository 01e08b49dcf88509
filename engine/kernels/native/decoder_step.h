// One forward step of a decoder of the Llama form: a flat batch of tokens of several sequences.
//
// All threads walk through the same list of operations, share out each one's work, and meet at a
// barrier before the next. The structures mirror those in `structs.py`.
#pragma once

#include <vector>

#include "attention.h"
#include "linear.h"
#include "threads.h"

namespace lectern {

struct Layer {
  const float* input_norm;  // [hidden]
  const float* qk_norm;     // [num_heads + num_kv_heads, head_dim] or null
  const float* mlp_norm;    // [hidden]
  Linear qkv, output, gate_up, down;
  int64_t window;  // 0: all tokens before
};

struct Model {
  int64_t num_layers, hidden_size, intermediate_size, num_heads, num_kv_heads, head_dim;
  int64_t rotary_dim;
  float norm_eps, attention_scale;
  const float* cosines;  // [positions, rotary_dim / 2]
  const float* sines;
  const float* final_norm;
  Linear embedding, head;
  const Layer* layers;
};

struct Cache {
  uint8_t* keys;    // [layers, slots, num_kv_heads, head_dim]
  uint8_t* values;
  int64_t layer_bytes;
  int32_t is_half;
  int32_t block_size;
};

struct Batch {
  int64_t num_tokens, num_spans, num_samples;
  const int64_t* token_ids;    // [T]
  const int64_t* positions;    // [T]
  const int64_t* slots;        // [T]
  const int64_t* query_starts;  // [spans], as the next three
  const int64_t* num_queries;
  const int64_t* context_lens;
  const int64_t* block_starts;  // where a span's blocks begin in `blocks`
  const int32_t* blocks;
  const int64_t* sample_rows;  // [samples]
};

// Owns the threads and the memory between operations. Used by one thread at a time. Memory is
// allocated before the threads begin, so that only the caller can meet a `bad_alloc`.
class Engine {
 public:
  explicit Engine(int num_threads) : pool_(num_threads), scratch_(num_threads) {}

  // Computes the batch, writes its keys and values to the cache, and the logits [samples, vocab]
  // behind the sample rows.
  void step(const Model& model, const Cache& cache, const Batch& batch, float* logits);

  // out [T, rows] = x [T, columns] @ weight.T (+ bias)
  void multiply(const Linear& linear, const float* x, int64_t num_rows, float* out);

  // Writes k and v [T, num_kv_heads, head_dim] to the cache and attends: out
  // [T, num_heads * head_dim]. Strides are those of tokens, in elements.
  void attend(const CacheView& cache, const Batch& batch, int64_t num_heads, const float* q,
              int64_t q_stride, const float* k, int64_t k_stride, const float* v, int64_t v_stride,
              float scale, int64_t window, float* out);

 private:
  // A share of attention: rows of one span and one key head. Short spans are split by segment and
  // leave partials; in long ones a unit takes all segments of some rows.
  struct Unit {
    int64_t span, kv_head, segment, row_begin, row_end;
    int64_t partials;  // offset of the first one, or -1 in long spans
  };
  struct RowPlan {
    int64_t partials;  // of the row's first head and first segment, or -1: `attended_` is final
    int64_t head_stride, segment_stride, num_segments, kv_stride;
  };

  // One thread's own memory.
  struct Scratch {
    std::vector<float> row;           // the widest row of a step, or a chunk of an activation
    std::vector<float> total, later;  // partials of a unit of a long span
  };

  template <class Function>
  void each(int64_t total, int64_t grain, const Function& function);
  template <class Function>
  void each_row(int64_t rows, const Function& function);
  void product(const Linear& linear, int64_t rows, float* out, bool accumulate);
  void plan_attention(const Batch& batch, int64_t num_heads, int64_t num_kv_heads,
                      int64_t head_dim);
  void run_unit(const CacheView& cache, const Batch& batch, const Unit& unit, int64_t num_heads,
                const float* q, int64_t q_stride, float scale, int64_t window, Scratch& scratch);
  const float* attended_row(int64_t row, int64_t num_heads, int64_t num_kv_heads,
                            int64_t head_dim);
  void run(const Model& model, const Cache& cache, const Batch& batch, float* logits,
           Scratch& scratch);
  void reset_queues(int64_t count);
  void reserve(const Model& model, const Batch& batch);
  Quantized quantized(int64_t columns);

  ThreadPool pool_;
  std::vector<WorkQueue> queues_;
  std::vector<float> residual_, last_residual_, qkv_, attended_, gate_up_, partials_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_, sums_;
  std::vector<Unit> units_;
  std::vector<RowPlan> row_plans_;
  std::vector<Scratch> scratch_;
  static thread_local int64_t operation_;  // counts alike in all threads
};

}  // namespace lectern
