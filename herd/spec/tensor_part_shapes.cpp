#include <algorithm>

#include "herd/spec/table_builder_internal.h"

namespace herd::spec {

// Where ranks of a sequence-parallel axis share rows, each is counted with the longest shard.
BlockShape TableBuilder::part(const std::string& name, Split split) const {
  BlockShape block{.name = name};
  if (split == Split::kCut ? tp_ > 1 : sequence_) block.split = split;
  block.input_bytes = block.output_bytes = R_ * D_ * element_;
  return block;
}

void TableBuilder::set_scratch(BlockShape& block, int64_t input_gradients,
                               const std::function<void(HeldBytes&)>& forward,
                               const std::function<void(HeldBytes&, Halves)>& backward) {
  HeldBytes in_forward, in_backward, in_first_half;
  forward(in_forward);
  backward(in_backward, Halves::kTogether);
  backward(in_first_half, Halves::kApart);
  block.forward.scratch_bytes = in_forward.most() - in_forward.held();
  block.backward.scratch_bytes = in_backward.most() - input_gradients;
  block.first_half_scratch_bytes = in_first_half.most() - input_gradients - block.pending_bytes;
}

// The block looks up the tokens whose rows this rank has. It keeps their positions and the rows' numbers, which are
// counted as if it had all tokens.
BlockShape TableBuilder::cut_embedding() const {
  BlockShape block = part("embedding", Split::kCut);
  const int64_t rd = block.output_bytes;
  block.backward_reads_weights = false;
  block.looked_up_bytes = rd;
  block.input_bytes = R_ * 8;
  block.graph_bytes = 3 * block.input_bytes;
  block.forward.memory_bytes = static_cast<double>(2 * rd + 2 * rd / tp_);
  block.backward.memory_bytes = static_cast<double>((V_ / tp_) * D_ * gradient_element_ + 3 * rd / tp_);
  // The rows that are looked up, or their gradients, are copied; gradients also to the type of the weights' ones.
  HeldBytes forward, backward;
  forward.take(rd);
  forward.take_briefly(rd);
  const bool drops = m_.dropout > 0 && m_.is_rotary();  // gpt adds positions first
  if (drops) memory_of({}).drop(forward, R_ * D_, element_);
  if (drops) memory_of({}).drop(backward, R_ * D_, element_);
  backward.take_briefly(rd + row_gradient_scratch(R_));
  block.forward.scratch_bytes = forward.most() - rd;
  block.backward.scratch_bytes = backward.most();
  block.without_graph = without_graph(block.forward, R_ * D_);
  return block;
}

BlockShape TableBuilder::positions() const {
  BlockShape block = part("positions", Split::kSequence);
  const int64_t rd = rows_of_rank() * D_ * element_;
  block.forward.memory_bytes = block.backward.memory_bytes = static_cast<double>(3 * rd);
  const int64_t numbers = (rows_of_rank() + (packed_ ? R_ : 0)) * 8 + kSmallTensors;  // positions: of the rows, of all
  HeldBytes forward, backward;
  forward.take(rd);
  forward.take_briefly(rd + numbers);
  if (m_.dropout > 0) memory_of({}).drop(forward, rows_of_rank() * D_, element_);
  if (m_.dropout > 0) memory_of({}).drop(backward, rows_of_rank() * D_, element_);
  backward.take_briefly(numbers + row_gradient_scratch(rows_of_rank()));
  block.forward.scratch_bytes = forward.most() - rd;
  block.backward.scratch_bytes = backward.most() - (m_.dropout > 0 ? rd : 0);
  block.without_graph = without_graph(block.forward, rows_of_rank() * D_);
  block.backward_reads_weights = false;
  return block;
}

BlockShape TableBuilder::norm(const std::string& name, bool adds) const {
  BlockShape block = part(name, Split::kSequence);
  const int64_t rd = rows_of_rank() * D_ * element_;
  block.graph_bytes = rd + norm_bytes(rows_of_rank());
  block.forward.memory_bytes = static_cast<double>(2 * rd);
  block.backward.memory_bytes = static_cast<double>(5 * rd);
  HeldBytes backward;
  memory_of({}).norm_backward(backward, rows_of_rank());
  if (adds) backward.take_briefly(rd);  // the sum; the gradient that it adds to has been counted
  block.backward.scratch_bytes = backward.most() - (adds ? 0 : rd);
  block.without_graph = without_graph(block.forward, 0);
  return block;
}

BlockShape TableBuilder::cut_attention(const std::string& name, const LayerStyle& style) const {
  BlockShape block = part(name, Split::kCut);
  const bool flash = table_.attention == Attention::kFlash;
  const int64_t heads = R_ * (A_ + 2 * K_) / tp_ * element_;
  block.graph_bytes = (kept_input_ + R_ * 2 * (A_ + K_) / tp_) * element_ + (flash ? R_ * m_.heads / tp_ * 4 : 0);
  if (in_fp32_) block.graph_bytes += R_ * (2 * (A_ + 2 * K_) + (flash ? 4 * A_ : 0)) / tp_;
  block.graph_bytes += memory_of(style).kept_of_head_norms();
  block.score_bytes = saved_scores();
  block.pending_bytes = R_ * (2 * D_ + 2 * (A_ + K_) / tp_) * element_ + memory_of(style).head_norm_weights();
  const double weights = static_cast<double>((2 * A_ + 2 * K_) * D_ / tp_), rows = static_cast<double>(R_);
  const double scores = 4.0 * rows * static_cast<double>(S_) * static_cast<double>(A_ / tp_);
  block.forward.matmul_flops = 2 * rows * weights;
  block.forward.attention_flops = (style.causal && flash ? 0.5 : 1.0) * scores;
  block.forward.memory_bytes = static_cast<double>(2 * block.output_bytes + 2 * heads);
  block.backward.matmul_flops = 4 * rows * weights;
  block.backward.attention_flops = (flash ? 2.5 : 2) * block.forward.attention_flops;
  block.backward.memory_bytes = static_cast<double>(3 * block.output_bytes + 4 * heads);
  add_head_norms(block, style);
  const LayerMemory memory = memory_of(style);
  set_scratch(
      block, block.input_bytes, [&](HeldBytes& held) { memory.attention_forward(held); },
      [&](HeldBytes& held, Halves halves) { memory.attention_backward(held, halves, {}); });
  block.second_half_scratch_bytes = memory.second_half_of_attention();
  block.without_graph = without_graph(block.forward, R_ * (style.qk_norm ? 3 * A_ + 5 * K_ : 2 * A_ + 2 * K_) / tp_);
  add_cache(block, style);
  if (selective_) {
    block.backward.attention_flops += block.score_bytes > 0 ? block.forward.attention_flops : 0;
    block.backward.memory_bytes += 2.0 * static_cast<double>(block.score_bytes);
  } else {
    block.graph_bytes += block.score_bytes;
  }
  return block;
}

// The block adds what dropout leaves of a sum and its bias to the residual. It keeps none of them for its backward.
BlockShape TableBuilder::add(const std::string& name) const {
  BlockShape block = part(name, Split::kSequence);
  const int64_t rd = rows_of_rank() * D_ * element_;
  block.backward_reads_weights = false;
  block.forward.memory_bytes = static_cast<double>(4 * rd);
  block.backward.memory_bytes = static_cast<double>(2 * rd);
  HeldBytes forward, backward;
  const bool has_bias = m_.kind == "gpt";
  if (has_bias) forward.take(rd);
  if (m_.dropout > 0) memory_of({}).drop(forward, rows_of_rank() * D_, element_);
  forward.take(rd);
  if (m_.dropout > 0) memory_of({}).drop(backward, rows_of_rank() * D_, element_);
  if (has_bias)
    backward.take_briefly((gradient_element_ == element_ ? 1 : 1 + rows_of_rank()) * D_ * gradient_element_);
  block.forward.scratch_bytes = forward.most() - rd;
  block.backward.scratch_bytes = backward.most() - (m_.dropout > 0 ? rd : 0);
  block.without_graph = without_graph(block.forward, rows_of_rank() * D_);
  return block;
}

BlockShape TableBuilder::cut_feed(const std::string& name, const LayerStyle& style) const {
  BlockShape block = part(name, Split::kCut);
  const int64_t rf = R_ * F_ / tp_ * element_;
  block.graph_bytes = kept_input_ * element_ + feeds(style) * rf;
  block.pending_bytes = 2 * R_ * D_ * element_ + (style.feed == LayerStyle::Feed::kSwiGlu ? 3 : 2) * rf;
  const double gates = style.feed == LayerStyle::Feed::kSwiGlu ? 3 : 2, rows = static_cast<double>(R_);
  const double weights = gates * static_cast<double>(D_ * F_ / tp_);
  block.forward.matmul_flops = 2 * rows * weights;
  block.forward.memory_bytes = static_cast<double>(2 * block.output_bytes + 4 * rf);
  block.backward.matmul_flops = 4 * rows * weights;
  block.backward.memory_bytes = static_cast<double>(3 * block.output_bytes + 6 * rf);
  const LayerMemory memory = memory_of(style);
  set_scratch(
      block, block.input_bytes, [&](HeldBytes& held) { memory.feed_forward(held); },
      [&](HeldBytes& held, Halves halves) { memory.feed_backward(held, halves, {}); });
  block.second_half_scratch_bytes = memory.second_half_of_feed();
  block.without_graph = without_graph(block.forward, (style.feed == LayerStyle::Feed::kSwiGlu ? 3 : 2) * R_ * F_ / tp_);
  return block;
}

// Each rank runs whole experts on its own rows, so ranks of a tensor axis exchange nothing for them.
BlockShape TableBuilder::experts_of_rows(const std::string& name, const LayerStyle& style) const {
  BlockShape block = part(name, Split::kSequence);
  const LayerSizes sizes = sizes_of_mixture(style);
  const LayerMemory memory(sizes);
  const int64_t rd = sizes.R * D_ * element_, rf = sizes.R * expert_terms() * F_ * element_;
  block.graph_bytes = rd + feeds(style) * sizes.R * m_.shared_experts * F_ * element_ + memory.kept_of_routing() +
                      memory.kept_of_experts() + memory.kept_of_shared_gate();
  block.pending_bytes = 2 * rd + 3 * rf + memory.pending_of_routing();
  const double products = static_cast<double>(sizes.R) * feed_weights(style);
  block.forward.matmul_flops = 2 * products;
  block.forward.memory_bytes = static_cast<double>((2 + 4 * m_.top_k) * rd + 4 * rf);
  block.backward.matmul_flops = 4 * products;
  block.backward.memory_bytes = static_cast<double>((3 + 8 * m_.top_k) * rd + 6 * rf);
  set_scratch(
      block, rd, [&](HeldBytes& held) { memory.feed_forward(held); },
      [&](HeldBytes& held, Halves halves) { memory.feed_backward(held, halves, {}); });
  block.second_half_scratch_bytes = memory.second_half_of_feed();
  block.without_graph = without_graph(block.forward, sizes.R * elements_in_mixture());
  add_mixture(block, sizes.R);
  return block;
}

}  // namespace herd::spec
