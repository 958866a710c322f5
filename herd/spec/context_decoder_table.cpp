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

// Makes queries, keys and values of this tensor rank's heads, in the order of the context ranks that get them. A norm
// stands before it.
BlockShape TableBuilder::cut_projection(const std::string& name, const LayerStyle& style) const {
  BlockShape block = part(name, Split::kCut);
  block.gives_heads = true;
  const LayerMemory memory = memory_of(style);
  const int64_t rd = R_ * D_, products = (A_ + 2 * K_) / tp_, exchanged = R_ * exchanged_width();
  block.output_bytes = exchanged * element_;
  block.outputs = by_rank(exchanged_width() / (table_.ring ? 1 : cp_));
  block.graph_bytes = kept_input_ * element_;
  block.pending_bytes = R_ * (D_ + products) * element_;
  const double matmul = 2.0 * static_cast<double>(rd) * static_cast<double>(products);
  block.forward.matmul_flops = matmul;
  block.forward.memory_bytes = static_cast<double>((rd + 3 * exchanged) * element_);
  block.backward.matmul_flops = 2 * matmul;
  block.backward.memory_bytes = static_cast<double>((2 * rd + 5 * exchanged) * element_);
  HeldBytes forward, backward, first_half;
  memory.product_of_heads_forward(forward, exchanged);
  memory.product_of_heads_backward(backward, Halves::kTogether, {});
  memory.product_of_heads_backward(first_half, Halves::kApart, {});
  block.forward.scratch_bytes = forward.most() - forward.held();
  block.backward.scratch_bytes = backward.most() - block.input_bytes;
  block.first_half_scratch_bytes = first_half.most() - block.input_bytes - block.pending_bytes;
  block.second_half_scratch_bytes = memory.gradient_scratch(R_, D_, products, style.biases);
  block.without_graph = without_graph(block.forward, R_ * products + exchanged);
  return block;
}

// Projects the outputs of this tensor rank's heads, of this context rank's tokens. The sum over ranks has no bias yet.
BlockShape TableBuilder::cut_output(const std::string& name, const LayerStyle& style) const {
  BlockShape block = part(name, Split::kCut);
  const LayerMemory memory = memory_of(style);
  const int64_t rd = R_ * D_, ra = R_ * A_ / tp_;
  block.input_bytes = ra * element_;
  block.graph_bytes = (table_.ring ? 1 : 2) * ra * element_;  // in both orders, where these differ
  block.pending_bytes = (ra + rd) * element_;
  const double matmul = 2.0 * static_cast<double>(R_ * D_) * static_cast<double>(A_ / tp_);
  block.forward.matmul_flops = matmul;
  block.forward.memory_bytes = static_cast<double>((rd + 3 * ra) * element_);
  block.backward.matmul_flops = 2 * matmul;
  block.backward.memory_bytes = static_cast<double>((2 * rd + 5 * ra) * element_);
  HeldBytes forward, backward, first_half;
  memory.output_of_heads_forward(forward);
  memory.output_of_heads_backward(backward, Halves::kTogether);
  memory.output_of_heads_backward(first_half, Halves::kApart);
  block.forward.scratch_bytes = forward.most() - forward.held();
  block.backward.scratch_bytes = backward.most() - block.input_bytes;
  block.first_half_scratch_bytes = first_half.most() - block.input_bytes - block.pending_bytes;
  block.second_half_scratch_bytes = memory.gradient_scratch(R_, A_ / tp_, D_, false);
  block.without_graph = without_graph(block.forward, ra + rd);
  return block;
}

// Normalises this rank's tokens and makes queries, keys and values of them, in the order of the ranks that get them.
BlockShape TableBuilder::token_projection(const std::string& name, const LayerStyle& style) const {
  BlockShape block{.name = name};
  const LayerMemory memory = memory_of(style);
  const int64_t rd = R_ * D_, products = A_ + 2 * K_, exchanged = R_ * exchanged_width();
  block.input_bytes = rd * element_;
  block.output_bytes = exchanged * element_;
  block.outputs = by_rank(exchanged_width() / (table_.ring ? 1 : cp_));
  block.graph_bytes = 2 * rd * element_ + memory.norm_numbers(R_);
  block.pending_bytes = R_ * (D_ + products) * element_ + memory.norm_weights();
  const double matmul = 2.0 * static_cast<double>(R_ * D_) * static_cast<double>(products);
  block.forward.matmul_flops = matmul;
  block.forward.memory_bytes = static_cast<double>((4 * rd + 3 * exchanged) * element_);
  block.backward.matmul_flops = 2 * matmul;
  block.backward.memory_bytes = static_cast<double>((8 * rd + 5 * exchanged) * element_);
  HeldBytes forward, backward, first_half;
  memory.projection_forward(forward, exchanged);
  memory.projection_backward(backward, Halves::kTogether);
  memory.projection_backward(first_half, Halves::kApart);
  block.forward.scratch_bytes = forward.most() - forward.held();
  block.backward.scratch_bytes = backward.most();
  block.first_half_scratch_bytes = first_half.most() - block.pending_bytes;
  block.second_half_scratch_bytes = memory.gradient_scratch(R_, D_, products, style.biases);
  block.without_graph = without_graph(block.forward, R_ * (D_ + products) + exchanged);
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
  // The graph holds its input, and queries, keys and values in another order or type.
  const bool copies = in_fp32_ || B_ > 1 || m_.dropout > 0;
  block.graph_bytes = (in_fp32_ ? sizes.R : padded) * width * in_attention + (copies ? block.input_bytes : 0);
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

// Projects attention's output, adds the residual, and runs the feed-forward part, all of this rank's tokens.
BlockShape TableBuilder::token_output(const std::string& name, const LayerStyle& style) const {
  BlockShape block{.name = name};
  const LayerMemory memory = memory_of(style);
  const int64_t rd = R_ * D_, ra = R_ * A_, rf = R_ * F_, ups = style.feed == LayerStyle::Feed::kSwiGlu ? 2 : 1;
  block.input_bytes = ra * element_;  // the tensor before it; the layer's input is that of the projection
  block.output_bytes = rd * element_;
  const int64_t heads = (table_.ring ? 1 : 2) * ra;  // in both orders, where these differ
  block.graph_bytes = (heads + 2 * rd + feeds(style) * rf) * element_ + memory.norm_numbers(R_);
  block.pending_bytes = (ra + 3 * rd + (1 + ups) * rf) * element_ + memory.norm_weights();
  const double matmul =
      2.0 * static_cast<double>(R_ * D_) * (static_cast<double>(A_) + static_cast<double>((1 + ups) * F_));
  block.forward.matmul_flops = matmul;
  block.forward.memory_bytes = static_cast<double>((10 * rd + 2 * ra + 4 * rf) * element_);
  block.backward.matmul_flops = 2 * matmul;
  block.backward.memory_bytes = static_cast<double>((14 * rd + 3 * ra + 6 * rf) * element_);
  HeldBytes forward, backward, first_half;
  memory.output_forward(forward);
  memory.output_backward(backward, Halves::kTogether);
  memory.output_backward(first_half, Halves::kApart);
  block.forward.scratch_bytes = forward.most() - forward.held();
  const int64_t gradients = (rd + ra) * element_;  // of both inputs
  block.backward.scratch_bytes = backward.most() - gradients;
  block.first_half_scratch_bytes = first_half.most() - gradients - block.pending_bytes;
  block.second_half_scratch_bytes =
      std::max(memory.second_half_of_feed(), memory.gradient_scratch(R_, A_, D_, style.biases));
  block.without_graph = without_graph(block.forward, ra + 5 * rd + (1 + ups) * rf);
  return block;
}

// Groups are those of decoder_table().
ModelTable context_decoder_table(const RunFile& run, int64_t micro_batch, Kernels kernels) {
  TableBuilder table(run, micro_batch, kernels);
  ModelTable whole = decoder_table(run, micro_batch, kernels);
  const LayerStyle style = decoder_style(run.model);
  std::vector<int> groups;
  for (const ParameterGroupShape& group : whole.groups) groups.push_back(table.add_group(group.name, group.parameters));
  int blocks = 0;
  const auto add = [&](BlockShape block, int layer, std::vector<int> read, std::vector<TensorId> inputs = {}) {
    block.layer = layer;
    block.inputs = std::move(inputs);
    if (!block.in_ring) block.inner.clear();
    block.num_program_blocks = 1;
    table.add_block(std::move(block), std::move(read));
    return ++blocks;  // the number of the activation that the block gives
  };
  for (int layer = 0; layer < static_cast<int>(whole.blocks.size()); ++layer) {
    BlockShape& block = whole.blocks[static_cast<size_t>(layer)];
    const std::vector<int> read = block.groups;
    if (layer == 0 || block.is_loss()) {
      add(std::move(block), layer, read);
      continue;
    }
    const std::string name = block.name;
    const int input = blocks;
    add(table.token_projection(name + ".qkv", style), layer, read);
    const int attended = add(run.strategy.context == "ring" ? table.ring_attention(name + ".attention", style)
                                                            : table.head_attention(name + ".attention", style),
                             layer, {});
    add(table.token_output(name + ".output", style), layer, read, {{input}, {attended}});
  }
  return table.take();
}

}  // namespace herd::spec
