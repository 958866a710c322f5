#include "herd/program/build.h"

#include <algorithm>
#include <set>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/program_names.h"
#include "herd/spec/model_states.h"

namespace herd::program {
namespace {

// Writes the training step of one rank without any strategy.
class PlainStepWriter {
 public:
  PlainStepWriter(const spec::RunFile& run, const spec::ModelTable& model)
      : run_(run), model_(model), have_backward_(model.have_backward()), readers_(model.readers()) {
    for (const auto& [tensor, readers] : readers_) read_tensors_[tensor.producer].push_back(tensor);
  }

  void write(Program& step) {
    declare_values(step);
    const int last = step.num_blocks - 1;
    Op load{.kind = OpKind::kLoad, .writes = activations(read_tensors_[0]), .block = 0, .micro_batch = 0};
    std::vector<Value> loss_reads = activations(model_.inputs_of(last));
    if (model_.target_bytes > 0) {
      load.writes.push_back(target(0));
      loss_reads.push_back(target(0));
    }
    step.ops.push_back(std::move(load));
    for (int b = 0; b < last; ++b) step.ops.push_back(forward(b));
    step.ops.push_back(backward(OpKind::kLoss, last, loss_reads, {loss(0)}, step.scratch));
    for (int b = last - 1; b >= 0; --b) {
      if (!has_backward(b)) continue;
      std::vector<Value> reads = {graph(b, 0)};
      for (const spec::TensorId tensor : read_tensors_[b + 1]) {
        if (has_gradient(tensor)) reads.push_back(activation_gradient(tensor, 0));
      }
      step.ops.push_back(backward(OpKind::kBackward, b, reads, {}, step.scratch));
    }
    for (int g = 0; g < static_cast<int>(model_.groups.size()); ++g) {
      if (frozen(g)) continue;
      step.ops.push_back(
          {.kind = OpKind::kStep, .reads = {gradient(g), weight(g), state(g)}, .writes = {weight(g), state(g)}});
    }
  }

 private:
  using Scratch = std::map<std::pair<OpKind, int>, int64_t>;  // as Program::scratch

  bool frozen(int group) const { return model_.groups[static_cast<size_t>(group)].frozen; }
  bool has_backward(int block) const { return have_backward_[static_cast<size_t>(block)]; }
  bool has_gradient(spec::TensorId tensor) const {
    return tensor.producer > 0 && has_backward(tensor.producer - 1) && model_.is_differentiable(tensor);
  }

  void declare_values(Program& step) const {
    const int64_t element_bytes = size_of(model_.compute_dtype);
    for (int g = 0; g < static_cast<int>(model_.groups.size()); ++g) {
      const int64_t elements = model_.group_elements(g);
      step.values[weight(g)] = {.bytes = elements * element_bytes, .persistent = true};
      if (frozen(g)) continue;
      step.values[gradient(g)] = {.bytes = elements * size_of(model_.gradient_dtype)};
      step.values[state(g)] = {.bytes = elements * state_bytes_per_parameter(run_), .persistent = true};
    }
    for (int b = 0; b < step.num_blocks; ++b) {
      const spec::BlockShape& block = model_.blocks[static_cast<size_t>(b)];
      const bool is_last = b + 1 == step.num_blocks, has_graph = has_backward(b) && !is_last;
      if (has_graph) declare_graph(step, b);
      const bool keeps_none = model_.is_chain() && !has_graph && !is_last;
      const int64_t scratch = (keeps_none ? block.without_graph : block.forward).scratch_bytes;
      if (scratch > 0) step.scratch[{is_last ? OpKind::kLoss : OpKind::kForward, b}] = scratch;
      if (has_backward(b) && block.backward.scratch_bytes != 0)
        step.scratch[{OpKind::kBackward, b}] = block.backward.scratch_bytes;
    }
    for (const auto& [tensor, readers] : readers_) {
      step.values[activation(tensor, 0)] = {.bytes = model_.tensor_bytes(tensor)};
      if (has_gradient(tensor)) step.values[activation_gradient(tensor, 0)] = {.bytes = model_.tensor_bytes(tensor)};
    }
    if (model_.target_bytes > 0) step.values[target(0)] = {.bytes = model_.target_bytes};
    step.values[loss(0)] = {.bytes = 16, .persistent = true};  // sum and count of the loss, 8 bytes each
  }

  void declare_graph(Program& step, int b) const {
    const spec::BlockShape& block = model_.blocks[static_cast<size_t>(b)];
    int64_t bytes = block.graph_bytes;
    for (const spec::TensorId tensor : block.kept) bytes -= model_.tensor_bytes(tensor);
    step.values[graph(b, 0)] = {.bytes = std::max<int64_t>(0, bytes)};
    if (!block.kept.empty()) step.kept[b] = block.kept;
  }

  std::vector<Value> weights(int block) const {
    std::vector<Value> out;
    for (const int g : model_.blocks[static_cast<size_t>(block)].groups) out.push_back(weight(g));
    return out;
  }

  static std::vector<Value> activations(const std::vector<spec::TensorId>& tensors) {
    std::vector<Value> out;
    for (const spec::TensorId tensor : tensors) out.push_back(activation(tensor, 0));
    return out;
  }

  Op forward(int b) {
    Op op{.kind = OpKind::kForward,
          .reads = weights(b),
          .writes = activations(read_tensors_[b + 1]),
          .block = b,
          .micro_batch = 0};
    if (has_backward(b)) op.writes.push_back(graph(b, 0));
    for (const spec::TensorId input : model_.inputs_of(b)) op.reads.push_back(activation(input, 0));
    return op;
  }

  // The first op of a gradient writes it; later ops read it, too, and add to it.
  Op backward(OpKind kind, int b, const std::vector<Value>& reads, const std::vector<Value>& results,
              Scratch& scratch) {
    Op op{.kind = kind, .reads = {}, .writes = {}, .block = b, .micro_batch = 0};
    for (const spec::TensorId input : model_.inputs_of(b)) {
      if (has_gradient(input)) op.writes.push_back(activation_gradient(input, 0));
    }
    const std::vector<Value> inputs = op.writes;
    op.writes.insert(op.writes.end(), results.begin(), results.end());
    if (kind == OpKind::kLoss || model_.blocks[static_cast<size_t>(b)].backward_reads_weights) op.reads = weights(b);
    op.reads.insert(op.reads.end(), reads.begin(), reads.end());
    for (const Value& input : inputs) {
      if (written_inputs_.insert(input).second) continue;
      op.reads.push_back(input);
      if (model_.is_chain()) scratch[{kind, b}] += model_.tensor_bytes(tensor_of(input));  // what is added
    }
    for (const int g : model_.blocks[static_cast<size_t>(b)].groups) {
      if (frozen(g)) continue;
      if (!written_groups_.insert(g).second) op.reads.push_back(gradient(g));
      op.writes.push_back(gradient(g));
    }
    return op;
  }

  const spec::RunFile& run_;
  const spec::ModelTable& model_;
  const std::vector<bool> have_backward_;                     // by block
  const std::map<spec::TensorId, std::vector<int>> readers_;  // by tensor
  std::map<int, std::vector<spec::TensorId>> read_tensors_;   // by producer: its tensors that blocks read
  std::set<int> written_groups_;                              // gradients of groups that have their first contribution
  std::set<Value> written_inputs_;  // gradients of activations that have their first contribution
};

}  // namespace

int64_t state_bytes_per_parameter(const spec::RunFile& run) {
  return static_cast<int64_t>(spec::state_bytes(run).states);
}

Program plain_step(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout, int rank) {
  Program step;
  step.rank = rank;
  step.num_blocks = static_cast<int>(model.blocks.size());
  step.mesh = layout.mesh;
  step.context_zigzag = model.ring;
  for (const spec::BlockShape& block : model.blocks) step.block_groups.push_back(block.groups);
  PlainStepWriter(run, model).write(step);
  return step;
}

}  // namespace herd::program
