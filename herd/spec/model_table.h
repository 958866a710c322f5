// Defines the model table of a model: its blocks in order, their parameter groups, and what each costs to run on one
// rank. build_model_table.h makes it from a run file. The same model is written with tensors in herd/models; a test
// there proves that names, shapes and FLOPs agree.
// Symbols: B sequences and T tokens of a micro-batch.
// Threads: pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/spec/block_shape.h"
#include "herd/spec/parameter_group_shape.h"

namespace herd::spec {

enum class Attention : uint8_t {
  kFlash,  // works by blocks: keeps q, k, v, the output and one number a row
  kMath,   // holds the T x T probabilities of every head
};

struct ModelTable {
  std::vector<BlockShape> blocks;  // embedding, transformer blocks, head (final norm, output layer, loss)
  std::vector<ParameterGroupShape> groups;
  std::vector<TensorShape> batch = {};  // tensors of a micro-batch; empty = its tokens alone
  DType compute_dtype = DType::kF32;    // type of weights and activations
  DType gradient_dtype = DType::kF32;   // type of weights' gradients
  int tp = 1;                           // ranks that share each block's heads and feed-forward width
  int cp = 1;                           // ranks that share the tokens of each sequence
  int ep = 1;                           // ranks that hold equal parts of the experts
  bool ring = false;                    // true: in a zigzag, and keys and values pass around these ranks
  int64_t micro_batch = 1;              // B, sequences of a micro-batch
  int64_t tokens = 0;                   // B*T, tokens of a micro-batch on this rank
  int64_t target_bytes = 0;             // bytes of a micro-batch's targets; 0 where the loss reads tensors of `batch`
  int64_t masked_tokens = 0;            // of a sequence that a bert predicts
  Attention attention = Attention::kFlash;
  // True with selective recompute: backward computes the T x T matrices again instead of keeping them.
  bool recomputes_attention = false;
  int64_t parameters() const;         // returns the parameters of the model
  int64_t frozen_parameters() const;  // returns the parameters that are not trained
  int first_trained() const;  // returns the first block that reads a trained group; blocks.size() where none does
  int64_t group_elements(int group) const;               // returns the most elements that one rank holds of a group
  std::vector<TensorId> inputs_of(int block) const;      // returns the tensors that a block reads (BlockShape::inputs)
  std::map<TensorId, std::vector<int>> readers() const;  // returns the blocks that read each tensor, ascending
  int64_t tensor_bytes(TensorId tensor) const;           // returns the bytes of a tensor of a full micro-batch
  // Tells whether a tensor that some block reads gets a gradient: it is differentiable, and a block with a backward
  // gives it. `first` is first_trained().
  bool has_gradient(TensorId tensor, int first) const;
  bool has_backward(int block, int first) const;  // tells whether it has a trained group, or an input with a gradient
  std::vector<bool> have_backward() const;        // returns has_backward() of each block
  bool is_differentiable(TensorId tensor) const;  // tells whether a gradient may flow back through the tensor
  // Tells whether it is the table of a chain of the user's own blocks, whose batch has tensors with names.
  bool is_chain() const { return !batch.empty(); }
  bool is_split() const;  // tells whether layers are cut into blocks for tensor parallelism
  double flops() const;   // returns the FLOP of one rank for one micro-batch, forward and backward
};

}  // namespace herd::spec
