// Runs blocks on one micro-batch, one after the other, and counts what each gives, keeps and computes. The tables of
// herd's own families are checked with the same counts. Threads: one at a time.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "herd/nn/block.h"
#include "herd/spec/block_shape.h"

namespace herd {

// Describes a tensor, all of whose sizes are taken for fixed.
spec::TensorShape shape_of(const at::Tensor& tensor, const std::string& name);

// Counts bytes by the allocator of bridge/budget_allocator.h, which is installed before. A block's groups and their
// gradients are attached while it is traced.
class BlockTracer {
 public:
  // `inputs[b]` lists what block b reads. `batch` are the tensors of a micro-batch, `context` is that of each pass.
  BlockTracer(std::vector<std::vector<spec::TensorId>> inputs, nn::Tuple batch, nn::Context context);

  // Fills in what block b gives and keeps, and what its passes cost. What no later block reads is freed.
  void trace(nn::Block& block, int b, spec::BlockShape& shape);
  void trace_loss(nn::LossBlock& block, const at::Tensor& targets, int b, spec::BlockShape& shape);

  bool is_differentiable(spec::TensorId tensor) const;  // tells of a traced block's output
  bool has(spec::TensorId tensor) const { return tensors_.contains(tensor); }

 private:
  // Returns copies of what a block reads, so that nothing else holds their memory.
  nn::Tuple own_inputs(int b) const;
  bool is_read(spec::TensorId tensor) const { return last_reader_.contains(tensor); }
  void trace_with_graph(nn::Block& block, int b, nn::Tuple inputs, spec::BlockShape& shape);
  void trace_without_graph(nn::Block& block, int b, const nn::Tuple& inputs, spec::BlockShape& shape);
  // Returns what backward makes where the weights have become others since forward.
  std::vector<std::byte> made_with_other_weights(nn::Block& block, int b, const nn::Tuple& dy, bool nan);
  void forget_what_was_read(int b);

  std::vector<std::vector<spec::TensorId>> inputs_;
  nn::Context context_;
  std::map<spec::TensorId, at::Tensor> tensors_;  // those that a later block reads
  std::map<spec::TensorId, bool> differentiable_;
  std::map<spec::TensorId, int> last_reader_;
};

}  // namespace herd
