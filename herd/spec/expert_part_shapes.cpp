#include <algorithm>

#include "herd/spec/table_builder_internal.h"

namespace herd::spec {

LayerSizes TableBuilder::sizes_of_mixture(const LayerStyle& style) const {
  LayerSizes sizes = sizes_of(style);
  sizes.R = rows_of_rank(), sizes.F = F_;
  return sizes;
}

// Chooses experts for this rank's rows, and gives a row for each token and expert, in the order of experts, the weights
// of these rows, the output of shared experts, and the losses of routers so far. What it has chosen is a value that the
// exchanges and the blocks after it read, too (kRouting). Of these parts no pass generates, so none says what a forward
// without a graph costs.
BlockShape TableBuilder::route(const std::string& name, const LayerStyle& style) const {
  BlockShape block = part(name, Split::kSequence);
  const LayerSizes sizes = sizes_of_mixture(style);
  const LayerMemory memory(sizes);
  const int64_t R = sizes.R, k = m_.top_k, rd = R * D_ * element_, shared = m_.shared_experts;
  const int64_t all = R_ * D_ * element_;  // of all tensor ranks, which share the rows
  block.output_bytes = k * all;
  block.outputs = {{.bytes = k * all, .dtype = table_.compute_dtype}, {.bytes = R_ * k * 4, .dtype = DType::kF32}};
  if (shared > 0) block.outputs.push_back({.bytes = all, .dtype = table_.compute_dtype});
  if (m_.has_router_losses()) block.outputs.push_back(with_router_losses()[1]);
  const int64_t shared_f = R * shared * F_ * element_;
  // With rows, tokens and weights; with choices and counts, which are the host's where a device computes.
  block.routing_bytes = R * k * (16 + 4) + (on_device_ ? 0 : R * k * 8 + (ep_ + 1) * (m_.experts + 1) * 8);
  share_choices(block);
  block.graph_bytes = rd + feeds(style) * shared_f + memory.kept_of_routing() + memory.kept_of_shared_gate();
  block.pending_bytes = (shared > 0 ? 2 : 1) * rd + 3 * shared_f + memory.pending_of_routing();
  const double matmul = 2.0 * static_cast<double>(R) *
                        static_cast<double>(D_ * (m_.experts + (m_.has_shared_gate() ? 1 : 0) + 3 * shared * F_));
  block.forward.matmul_flops = matmul;
  block.forward.memory_bytes = static_cast<double>((2 + 2 * k) * rd + 4 * shared_f);
  block.backward.matmul_flops = 2 * matmul;
  block.backward.memory_bytes = static_cast<double>((3 + 2 * k) * rd + 6 * shared_f);
  set_scratch(
      block, rd, [&](HeldBytes& held) { memory.route_forward(held); },
      [&](HeldBytes& held, Halves halves) { memory.route_backward(held, halves); });
  block.second_half_scratch_bytes = memory.second_half_of_route();
  return block;
}

// Runs this rank's experts on the rows of all ranks that hold experts. Its work is that of a uniform router, its memory
// that of one with which all rows come to this rank.
BlockShape TableBuilder::own_experts(const std::string& name, const LayerStyle& style) const {
  BlockShape block = part(name, Split::kSequence);
  const LayerSizes sizes = sizes_of_mixture(style);
  const LayerMemory memory(sizes);
  const int64_t rd = m_.top_k * sizes.R * D_ * element_, rf = m_.top_k * sizes.R * F_ * element_;
  const int64_t rows = memory.rows_of_experts();
  block.by_experts = true;
  block.exchanged_bytes = rows * D_ * element_;
  block.input_bytes = block.output_bytes = m_.top_k * R_ * D_ * element_;
  block.outputs = {{.bytes = block.output_bytes, .dtype = table_.compute_dtype}};
  block.graph_bytes = block.exchanged_bytes + 2 * rows * F_ * element_ + memory.order_of_rows();
  block.pending_bytes = 2 * block.exchanged_bytes + 3 * rows * F_ * element_ + memory.order_of_rows();
  const double matmul = 6.0 * static_cast<double>(m_.top_k * sizes.R) * static_cast<double>(D_ * F_);
  block.forward.matmul_flops = matmul;
  block.forward.memory_bytes = static_cast<double>(2 * rd + 4 * rf);
  block.backward.matmul_flops = 2 * matmul;
  block.backward.memory_bytes = static_cast<double>(4 * rd + 6 * rf);
  set_scratch(
      block, block.exchanged_bytes, [&](HeldBytes& held) { memory.own_experts_forward(held); },
      [&](HeldBytes& held, Halves halves) { memory.own_experts_backward(held, halves); });
  block.second_half_scratch_bytes = memory.second_half_of_experts();
  return block;
}

// Adds up the rows of each token, times their weights, and the output of shared experts.
BlockShape TableBuilder::combine(const std::string& name) const {
  BlockShape block = part(name, Split::kSequence);
  const int64_t R = rows_of_rank(), k = m_.top_k, rd = R * D_ * element_;
  block.input_bytes = k * block.output_bytes;
  block.backward_reads_weights = false;
  block.graph_bytes = k * rd + R * k * (4 + 8);
  block.forward.memory_bytes = static_cast<double>((2 + k) * rd);
  block.backward.memory_bytes = static_cast<double>((1 + 3 * k) * rd);
  block.forward.scratch_bytes = m_.shared_experts > 0 ? rd : 0;
  if (!on_device_) return block;
  // A token's sum and a row of it in fp32; of all rows, their gradients in fp32 and one product of these.
  const int64_t in_fp32 = R * D_ * 4;
  block.forward.scratch_bytes = std::max(block.forward.scratch_bytes, 2 * in_fp32 + rd);
  block.backward.scratch_bytes = 2 * k * in_fp32;
  return block;
}

}  // namespace herd::spec
