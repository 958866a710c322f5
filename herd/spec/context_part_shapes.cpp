#include <algorithm>

#include "herd/spec/table_builder_internal.h"

namespace herd::spec {

// Where there are fewer key heads than ranks, each goes to as many ranks as need it.
int64_t TableBuilder::exchanged_width() const {
  const int64_t keys = K_ / tp_;
  return A_ / tp_ + 2 * (table_.ring ? keys : std::max(keys, cp_ * (A_ / m_.heads)));
}

LayerSizes TableBuilder::sizes_of_heads(const LayerStyle& style) const {
  LayerSizes sizes = sizes_of(style);
  const int64_t head = A_ / m_.heads;
  sizes.T = S_, sizes.R = B_ * S_;
  sizes.A /= cp_, sizes.heads /= cp_;
  sizes.key_heads = std::max<int64_t>(1, sizes.key_heads / cp_);
  sizes.K = sizes.key_heads * head;
  return sizes;
}

std::vector<TensorShape> TableBuilder::by_rank(int64_t width) const {
  const int64_t slices = table_.ring ? 1 : cp_;
  return {{.bytes = slices * R_ * width * element_,
           .dtype = table_.compute_dtype,
           .extents = {{slices, false}, {1, true}, {R_ / B_, false}, {width, false}}}};
}

// Makes queries, keys and values of this tensor rank's heads, in the order of the context ranks that get them. Its norm
// is joined to it where no ranks share what follows.
BlockShape TableBuilder::projection(const std::string& name, const LayerStyle& style, bool has_norm) const {
  BlockShape block = part(name, Split::kCut);
  block.gives_heads = tp_ > 1;
  const LayerMemory memory = memory_of(style);
  const int64_t rd = R_ * D_, products = (A_ + 2 * K_) / tp_, exchanged = R_ * exchanged_width();
  block.output_bytes = exchanged * element_;
  block.outputs = by_rank(exchanged_width() / (table_.ring ? 1 : cp_));
  block.graph_bytes =
      kept_input_ * element_ + (has_norm ? rd * element_ + memory.norm_numbers(R_) : 0) + memory.kept_of_head_norms();
  block.pending_bytes =
      R_ * (D_ + products) * element_ + (has_norm ? memory.norm_weights() : 0) + memory.head_norm_weights();
  const double matmul = 2.0 * static_cast<double>(rd) * static_cast<double>(products);
  block.forward.matmul_flops = matmul;
  block.forward.memory_bytes = static_cast<double>(((has_norm ? 4 : 1) * rd + 3 * exchanged) * element_);
  block.backward.matmul_flops = 2 * matmul;
  block.backward.memory_bytes = static_cast<double>(((has_norm ? 8 : 2) * rd + 5 * exchanged) * element_);
  add_head_norms(block, style);
  set_scratch(
      block, has_norm ? 0 : block.input_bytes,
      [&](HeldBytes& held) {
        if (has_norm) held.take(rd * element_ + memory.norm_numbers(R_));
        memory.product_of_heads_forward(held, exchanged);
      },
      [&](HeldBytes& held, Halves halves) {
        memory.product_of_heads_backward(held, halves, {.owns_input = has_norm});
        if (has_norm) memory.norm_backward(held, R_);
      });
  block.second_half_scratch_bytes = memory.gradient_scratch(R_, D_, products, style.has_qkv_bias());
  const int64_t in_norms = style.qk_norm ? 2 * (A_ + K_) / tp_ + products : 0;
  block.without_graph = without_graph(block.forward, R_ * ((has_norm ? D_ : 0) + products + in_norms) + exchanged);
  return block;
}

// Projects the outputs of this tensor rank's heads, of this context rank's tokens. Where tensor ranks share it, their
// sum has no bias yet; else the rest of the layer is joined to it, from the sum with the residual on.
BlockShape TableBuilder::output(const std::string& name, const LayerStyle& style, bool has_rest) const {
  BlockShape block = part(name, Split::kCut);
  const LayerMemory memory = memory_of(style);
  const int64_t rd = R_ * D_, ra = R_ * A_ / tp_, rf = has_rest ? R_ * expert_terms() * F_ : 0;
  const int64_t products = style.feed == LayerStyle::Feed::kSwiGlu ? 3 : 2;  // of the feed-forward part
  block.input_bytes = ra * element_;  // the tensor before it; the layer's input is that of the projection
  block.graph_bytes = ra * element_;
  block.pending_bytes = (ra + rd + products * rf) * element_;
  if (has_rest) {
    const int64_t kept_rf = m_.is_moe() ? R_ * m_.shared_experts * F_ : rf;  // of what is no expert
    block.graph_bytes += (2 * rd + feeds(style) * kept_rf) * element_ + memory.norm_numbers(R_);
    if (m_.is_moe())
      block.graph_bytes += memory.kept_of_routing() + memory.kept_of_experts() + memory.kept_of_shared_gate();
    block.pending_bytes += 2 * rd * element_ + memory.norm_weights() + memory.pending_of_routing();
    add_mixture(block, R_);
  }
  const double matmul = 2.0 * (static_cast<double>(D_) * static_cast<double>(ra) +
                               (has_rest ? static_cast<double>(R_) * feed_weights(style) : 0));
  const int64_t sorted = has_rest && m_.is_moe() ? 4 * m_.top_k * rd : 0;  // rows of experts are copied, and added up
  block.forward.matmul_flops = matmul;
  block.forward.memory_bytes =
      static_cast<double>((has_rest ? 10 * rd + 2 * ra + 4 * rf + sorted : rd + 3 * ra) * element_);
  block.backward.matmul_flops = 2 * matmul;
  block.backward.memory_bytes =
      static_cast<double>((has_rest ? 14 * rd + 3 * ra + 6 * rf + 2 * sorted : 2 * rd + 5 * ra) * element_);
  set_scratch(
      block, (has_rest ? rd * element_ : 0) + block.input_bytes,
      [&](HeldBytes& held) {
        memory.output_of_heads_forward(held);
        if (has_rest) memory.rest_forward(held);
      },
      [&](HeldBytes& held, Halves halves) {
        if (has_rest) memory.rest_backward(held, halves);
        memory.output_of_heads_backward(held, halves, has_rest);
      });
  block.second_half_scratch_bytes = std::max(has_rest ? memory.second_half_of_feed() : 0,
                                             memory.gradient_scratch(R_, A_ / tp_, D_, has_rest && style.biases));
  const int64_t in_feed = has_rest && m_.is_moe() ? R_ * elements_in_mixture() : products * rf;
  block.without_graph = without_graph(block.forward, ra + (has_rest ? 5 : 1) * rd + in_feed);
  return block;
}

// Attention of all tokens of this rank's heads. It has no weights.
BlockShape TableBuilder::head_attention(const std::string& name, const LayerStyle& style) const {
  BlockShape block{.name = name};
  block.by_heads = true;
  if (tp_ > 1) block.split = Split::kCut, block.gives_heads = true;
  const bool flash = table_.attention == Attention::kFlash;
  const LayerSizes sizes = sizes_of_heads(style);
  const LayerMemory memory(sizes);
  const int64_t padded = R_ * cp_, width = sizes.A + 2 * sizes.K, in_attention = in_fp32_ ? 4 : element_;
  const int64_t matrices = 2 * B_ * sizes.heads * S_ * S_ * in_attention;
  block.input_bytes = padded * width * element_;
  block.output_bytes = padded * sizes.A * element_;
  block.outputs = by_rank(sizes.A);
  block.backward_reads_weights = false;
  block.graph_bytes = (in_fp32_ ? sizes.R : padded) * width * in_attention;  // in their order and type, not as read
  if (flash) block.graph_bytes += sizes.R * (sizes.A * in_attention + sizes.heads * 4);
  block.score_bytes = flash ? 0 : matrices;
  const double scores = 4.0 * static_cast<double>(sizes.R) * static_cast<double>(S_) * static_cast<double>(sizes.A);
  block.forward.attention_flops = (style.causal && flash ? 0.5 : 1.0) * scores;
  block.forward.memory_bytes = static_cast<double>(2 * block.input_bytes + 2 * block.output_bytes);
  block.backward.attention_flops = (flash ? 2.5 : 2) * block.forward.attention_flops;
  block.backward.memory_bytes = static_cast<double>(4 * block.input_bytes + 3 * block.output_bytes);
  HeldBytes forward, backward;
  memory.heads_forward(forward, padded);
  memory.heads_backward(backward, padded);
  block.forward.scratch_bytes = forward.most() - forward.held();
  block.backward.scratch_bytes = backward.most() - block.input_bytes;
  block.without_graph = without_graph(block.forward, padded * (width + 2 * sizes.A));
  add_cache(block, style);
  if (selective_ && !flash) {
    block.backward.attention_flops += block.forward.attention_flops;
    block.backward.memory_bytes += 2.0 * static_cast<double>(block.score_bytes);
  } else {
    block.graph_bytes += block.score_bytes;
  }
  return block;
}

// Attention of this rank's tokens to all tokens. It has no weights. Keys and values of two ranks are there at a time.
BlockShape TableBuilder::ring_attention(const std::string& name, const LayerStyle& style) const {
  BlockShape block{.name = name};
  block.in_ring = true;
  if (tp_ > 1) block.split = Split::kCut, block.gives_heads = true;
  const LayerSizes sizes = sizes_of(style);
  const int64_t width = sizes.A + 2 * sizes.K, keys = 2 * R_ * sizes.K;  // elements of one rank's keys and values
  const LayerMemory memory(sizes);
  block.input_bytes = R_ * width * element_;
  block.output_bytes = R_ * sizes.A * element_;
  if (tp_ > 1) block.outputs = by_rank(sizes.A);
  block.backward_reads_weights = false;
  block.graph_bytes = block.input_bytes + R_ * sizes.heads * 4;  // the next block counts the output
  const double scores = 4.0 * static_cast<double>(R_) * static_cast<double>(S_) * static_cast<double>(sizes.A);
  block.forward.attention_flops = (style.causal ? 0.5 : 1.0) * scores;
  block.forward.memory_bytes = static_cast<double>(cp_ * (block.input_bytes + 3 * block.output_bytes));
  block.backward.attention_flops = 2.5 * block.forward.attention_flops;
  block.backward.memory_bytes = static_cast<double>(cp_ * (4 * block.input_bytes + 3 * block.output_bytes));
  HeldBytes forward, backward;
  memory.ring_forward(forward, keys, cp_);
  memory.ring_backward(backward, keys, cp_);
  block.forward.scratch_bytes = forward.most() - block.output_bytes - R_ * sizes.heads * 4;
  block.backward.scratch_bytes = backward.most() + block.output_bytes - block.input_bytes;
  block.without_graph = without_graph(block.forward, R_ * (width + 3 * sizes.A) + 2 * keys);
  // What a rank sends is what it would of all-gathers of these bytes: (P-1)/P of them.
  const int64_t sent_home = cp_ * keys * 4;
  block.inner = {{.axis = "cp",
                  .is_all_reduce = false,
                  .bytes = cp_ * keys * element_,
                  .times_forward = 1,
                  .times_backward = 1,
                  .times_recompute = 1},
                 {.axis = "cp", .is_all_reduce = false, .bytes = sent_home * cp_ / (cp_ - 1), .times_backward = 1}};
  add_cache(block, style);
  return block;
}

}  // namespace herd::spec
