#include "decoder_step.h"

#include <cmath>

#include "lanes.h"

namespace lectern {

thread_local int64_t Engine::operation_ = 0;

namespace {

constexpr int64_t kShortSpan = 16;  // queries up to which a span's rows are split by segment
constexpr int64_t kUnitRows = 16;   // query rows of a unit in longer spans
constexpr int64_t kActivationChunk = 1024;
constexpr int64_t kOperationsPerLayer = 10;

// x / sqrt(mean(x^2) + eps) * weight
void normalize(const float* x, const float* weight, int64_t size, float eps, float* out) {
  Lanes squares = fill(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Lanes v = load(x + i);
    squares += v * v;
  }
  float total = sum_of(squares);
  for (; i < size; ++i) total += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(total / static_cast<float>(size) + eps);
  for (i = 0; i < size; ++i) out[i] = x[i] * factor * weight[i];
}

// Pairs (i, i + size / 2) of the first `rotary_dim` elements are rotated by the position's angles.
void rotate(float* head, const float* cosines, const float* sines, int64_t rotary_dim) {
  const int64_t half = rotary_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half] = b * cosines[i] + a * sines[i];
  }
}

template <class Element>
void grow(std::vector<Element>& vector, int64_t size) {
  if (static_cast<int64_t>(vector.size()) < size) vector.resize(size);
}

CacheView view_of(const Cache& cache, const Model& model, int64_t layer) {
  return {cache.keys + layer * cache.layer_bytes,
          cache.values + layer * cache.layer_bytes,
          cache.is_half,
          static_cast<int32_t>(model.num_kv_heads),
          static_cast<int32_t>(model.head_dim),
          cache.block_size};
}

Span span_of(const Batch& batch, int64_t index) {
  return {batch.query_starts[index], batch.num_queries[index], batch.context_lens[index],
          batch.blocks + batch.block_starts[index]};
}

}  // namespace

template <class Function>
void Engine::each(int64_t total, int64_t grain, const Function& function) {
  queues_[operation_++].each(total, grain, function);
}

template <class Function>
void Engine::each_row(int64_t rows, const Function& function) {
  const int64_t grain = std::max<int64_t>(1, rows / (pool_.num_threads * 4));
  each(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) function(row);
  });
}

Quantized Engine::quantized(int64_t columns) {
  return {codes_.data(), scales_.data(), sums_.data(), static_cast<int32_t>(columns)};
}

// The product of what `quantized(linear.columns)` holds.
void Engine::product(const Linear& linear, int64_t rows, float* out, bool accumulate) {
  const Quantized in = quantized(linear.columns);
  const int64_t tiles = num_tiles(linear);
  const int64_t row_blocks = (rows + kRowBlock - 1) / kRowBlock;
  const int64_t grain =
      std::max<int64_t>(1, std::min<int64_t>(16, tiles * row_blocks / (pool_.num_threads * 12)));
  const int64_t chunks = (tiles + grain - 1) / grain;
  each(row_blocks * chunks, 1, [&](int64_t unit, int64_t) {
    const int64_t row = unit / chunks * kRowBlock, tile = unit % chunks * grain;
    lectern::multiply(linear, in, row, std::min(rows, row + kRowBlock), tile,
                      std::min(tiles, tile + grain), out, accumulate);
  });
}

void Engine::plan_attention(const Batch& batch, int64_t num_heads, int64_t num_kv_heads,
                            int64_t head_dim) {
  const int64_t group = num_heads / num_kv_heads, size = partial_size(head_dim);
  units_.clear();
  row_plans_.assign(batch.num_tokens, RowPlan{-1, 0, 0, 0, 0});
  int64_t num_partials = 0;
  for (int64_t s = 0; s < batch.num_spans; ++s) {
    const Span span = span_of(batch, s);
    const int64_t segments = (span.context_len + kSegment - 1) / kSegment;
    if (span.num_queries > kShortSpan) {
      // The last rows see most: first, so that no thread begins a long unit at the end.
      for (int64_t end = span.num_queries; end > 0; end -= kUnitRows)
        for (int64_t kv_head = 0; kv_head < num_kv_heads; ++kv_head)
          units_.push_back({s, kv_head, 0, std::max<int64_t>(0, end - kUnitRows), end, -1});
      continue;
    }
    const int64_t segment_size = span.num_queries * group * size;
    for (int64_t kv_head = 0; kv_head < num_kv_heads; ++kv_head)
      for (int64_t segment = 0; segment < segments; ++segment)
        units_.push_back({s, kv_head, segment, 0, span.num_queries,
                          num_partials + (kv_head * segments + segment) * segment_size});
    for (int64_t row = 0; row < span.num_queries; ++row)
      row_plans_[span.query_start + row] = {num_partials + row * group * size, size, segment_size,
                                            segments, segments * segment_size};
    num_partials += num_kv_heads * segments * segment_size;
  }
  grow(partials_, num_partials);
  grow(attended_, batch.num_tokens * num_heads * head_dim);
  for (Scratch& scratch : scratch_) {
    grow(scratch.total, kUnitRows * group * size);
    grow(scratch.later, kUnitRows * group * size);
  }
}

void Engine::run_unit(const CacheView& cache, const Batch& batch, const Unit& unit,
                      int64_t num_heads, const float* q, int64_t q_stride, float scale,
                      int64_t window, Scratch& scratch) {
  const Span span = span_of(batch, unit.span);
  const int64_t group = num_heads / cache.num_kv_heads;
  if (unit.partials >= 0) {
    attend_segment(cache, span, unit.segment, unit.kv_head, group, q, q_stride, unit.row_begin,
                   unit.row_end, scale, window, partials_.data() + unit.partials);
    return;
  }
  std::vector<float>&total = scratch.total, &later = scratch.later;
  const int64_t head_dim = cache.head_dim, size = partial_size(head_dim);
  const int64_t count = (unit.row_end - unit.row_begin) * group;
  const int64_t before = span.context_len - span.num_queries;
  const int64_t segments = (before + unit.row_end + kSegment - 1) / kSegment;
  for (int64_t segment = 0; segment < segments; ++segment) {
    float* into = segment == 0 ? total.data() : later.data();
    attend_segment(cache, span, segment, unit.kv_head, group, q, q_stride, unit.row_begin,
                   unit.row_end, scale, window, into);
    for (int64_t i = 0; segment > 0 && i < count; ++i)
      merge_partial(total.data() + i * size, later.data() + i * size, head_dim);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = span.query_start + unit.row_begin + i / group;
    const int64_t head = unit.kv_head * group + i % group;
    finish_partial(total.data() + i * size, head_dim,
                   attended_.data() + (row * num_heads + head) * head_dim);
  }
}

// The attention of one row, all heads; merges what is still in parts.
const float* Engine::attended_row(int64_t row, int64_t num_heads, int64_t num_kv_heads,
                                  int64_t head_dim) {
  float* out = attended_.data() + row * num_heads * head_dim;
  const RowPlan& plan = row_plans_[row];
  if (plan.partials < 0) return out;
  const int64_t group = num_heads / num_kv_heads;
  for (int64_t head = 0; head < num_heads; ++head) {
    float* first = partials_.data() + plan.partials + head / group * plan.kv_stride +
                   head % group * plan.head_stride;
    for (int64_t segment = 1; segment < plan.num_segments; ++segment)
      merge_partial(first, first + segment * plan.segment_stride, head_dim);
    finish_partial(first, head_dim, out + head * head_dim);
  }
  return out;
}

void Engine::reserve(const Model& model, const Batch& batch) {
  const int64_t tokens = std::max(batch.num_tokens, batch.num_samples);
  const int64_t q_size = model.num_heads * model.head_dim;
  const int64_t widest = std::max({model.hidden_size, model.intermediate_size, q_size});
  grow(residual_, batch.num_tokens * model.hidden_size);
  grow(last_residual_, batch.num_samples * model.hidden_size);
  grow(qkv_, batch.num_tokens * (q_size + 2 * model.num_kv_heads * model.head_dim));
  grow(gate_up_, tokens * 2 * model.intermediate_size);
  grow(codes_, tokens * widest);
  grow(scales_, tokens * widest / kGroup);
  grow(sums_, tokens * widest / kGroup * 2);
  for (Scratch& scratch : scratch_)
    grow(scratch.row, std::max(model.hidden_size, kActivationChunk));
  plan_attention(batch, model.num_heads, model.num_kv_heads, model.head_dim);
}

void Engine::reset_queues(int64_t count) {
  if (static_cast<int64_t>(queues_.size()) < count) queues_ = std::vector<WorkQueue>(count);
  for (auto& queue : queues_) queue.reset();
}

void Engine::step(const Model& model, const Cache& cache, const Batch& batch, float* logits) {
  reserve(model, batch);
  reset_queues((model.num_layers + 1) * kOperationsPerLayer);
  pool_.run([&](int thread) {
    operation_ = 0;
    run(model, cache, batch, logits, scratch_[thread]);
  });
}

void Engine::run(const Model& model, const Cache& cache, const Batch& batch, float* logits,
                 Scratch& scratch) {
  const int64_t hidden = model.hidden_size, inner = model.intermediate_size;
  const int64_t head_dim = model.head_dim, half_rotary = model.rotary_dim / 2;
  const int64_t q_size = model.num_heads * head_dim, kv_size = model.num_kv_heads * head_dim;
  const int64_t qkv_size = q_size + 2 * kv_size;
  const int64_t num_rotated = model.num_heads + model.num_kv_heads;
  float* const own_row = scratch.row.data();

  const auto normalize_row = [&](const float* residual, const float* weight, int64_t row) {
    normalize(residual + row * hidden, weight, hidden, model.norm_eps, own_row);
    quantize_row(own_row, quantized(hidden), row);
  };

  each_row(batch.num_tokens, [&](int64_t row) {
    unpack_row(model.embedding, batch.token_ids[row], residual_.data() + row * hidden);
  });
  for (int64_t index = 0; index < model.num_layers; ++index) {
    const Layer& layer = model.layers[index];
    const CacheView view = view_of(cache, model, index);
    each_row(batch.num_tokens,
             [&](int64_t row) { normalize_row(residual_.data(), layer.input_norm, row); });
    product(layer.qkv, batch.num_tokens, qkv_.data(), false);
    each_row(batch.num_tokens, [&](int64_t row) {
      float* heads = qkv_.data() + row * qkv_size;
      const float* cosines = model.cosines + batch.positions[row] * half_rotary;
      const float* sines = model.sines + batch.positions[row] * half_rotary;
      for (int64_t head = 0; head < num_rotated; ++head) {
        float* values = heads + head * head_dim;
        if (layer.qk_norm != nullptr)
          normalize(values, layer.qk_norm + head * head_dim, head_dim, model.norm_eps, values);
        rotate(values, cosines, sines, model.rotary_dim);
      }
      write_cache(view, batch.slots[row], heads + q_size, heads + q_size + kv_size);
    });
    const bool is_last = index + 1 == model.num_layers;
    if (is_last && batch.num_samples == 0) return;  // the cache is all that was wanted

    each(static_cast<int64_t>(units_.size()), 1, [&](int64_t unit, int64_t) {
      run_unit(view, batch, units_[unit], model.num_heads, qkv_.data(), qkv_size,
               model.attention_scale, layer.window, scratch);
    });
    // From the last layer's attention on, only rows that sample are computed.
    const int64_t rows = is_last ? batch.num_samples : batch.num_tokens;
    float* residual = is_last ? last_residual_.data() : residual_.data();
    each_row(rows, [&](int64_t row) {
      const int64_t source = is_last ? batch.sample_rows[row] : row;
      quantize_row(attended_row(source, model.num_heads, model.num_kv_heads, head_dim),
                   quantized(q_size), row);
      if (is_last)
        std::copy_n(residual_.data() + source * hidden, hidden, residual + row * hidden);
    });
    product(layer.output, rows, residual, true);
    each_row(rows, [&](int64_t row) { normalize_row(residual, layer.mlp_norm, row); });
    product(layer.gate_up, rows, gate_up_.data(), false);
    const int64_t chunks = (inner + kActivationChunk - 1) / kActivationChunk;
    const int64_t grain = std::max<int64_t>(1, rows * chunks / (pool_.num_threads * 4));
    each(rows * chunks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t row = unit / chunks, first = unit % chunks * kActivationChunk;
        const int64_t count = std::min(kActivationChunk, inner - first);
        const float* gate = gate_up_.data() + row * 2 * inner + first;
        for (int64_t i = 0; i < count; i += kLanes)
          store(own_row + i, silu(load(gate + i)) * load(gate + inner + i));
        const int64_t at = row * inner + first;
        quantize_row(own_row, count, codes_.data() + at, scales_.data() + at / kGroup,
                     sums_.data() + at / kGroup * 2);
      }
    });
    product(layer.down, rows, residual, true);
  }
  each_row(batch.num_samples,
           [&](int64_t row) { normalize_row(last_residual_.data(), model.final_norm, row); });
  product(model.head, batch.num_samples, logits, false);
}

void Engine::multiply(const Linear& linear, const float* x, int64_t num_rows, float* out) {
  const int64_t columns = linear.columns;
  grow(codes_, num_rows * columns);
  grow(scales_, num_rows * columns / kGroup);
  grow(sums_, num_rows * columns / kGroup * 2);
  reset_queues(2);
  pool_.run([&](int) {
    operation_ = 0;
    each_row(num_rows,
             [&](int64_t row) { quantize_row(x + row * columns, quantized(columns), row); });
    product(linear, num_rows, out, false);
  });
}

void Engine::attend(const CacheView& cache, const Batch& batch, int64_t num_heads, const float* q,
                    int64_t q_stride, const float* k, int64_t k_stride, const float* v,
                    int64_t v_stride, float scale, int64_t window, float* out) {
  const int64_t head_dim = cache.head_dim, q_size = num_heads * head_dim;
  plan_attention(batch, num_heads, cache.num_kv_heads, head_dim);
  reset_queues(3);
  pool_.run([&](int thread) {
    operation_ = 0;
    each_row(batch.num_tokens, [&](int64_t row) {
      write_cache(cache, batch.slots[row], k + row * k_stride, v + row * v_stride);
    });
    each(static_cast<int64_t>(units_.size()), 1, [&](int64_t unit, int64_t) {
      run_unit(cache, batch, units_[unit], num_heads, q, q_stride, scale, window,
               scratch_[thread]);
    });
    each_row(batch.num_tokens, [&](int64_t row) {
      std::copy_n(attended_row(row, num_heads, cache.num_kv_heads, head_dim), q_size,
                  out + row * q_size);
    });
  });
}

}  // namespace lectern
