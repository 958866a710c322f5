// Defines one block of a model on one rank, for one micro-batch: what it reads and keeps, and what its passes cost.
// Threads: plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "herd/spec/parameter_shape.h"
#include "herd/spec/pass_cost.h"
#include "herd/spec/tensor_shape.h"

namespace herd::spec {

// Describes a collective inside a block's pass, which no Program contains since autograd issues it.
struct InnerCollective {
  std::string axis;                           // "tp", "cp"
  bool is_all_reduce = true;                  // false: an all-gather or a reduce-scatter
  int64_t bytes = 0;                          // bytes of the whole message
  int times_forward = 0, times_backward = 0;  // times that each pass issues it
  // Extra times that a recomputed pass issues it: those of the recompute, less those that its backward saves.
  int times_recompute = 0;
};

// Says how the ranks of the tensor axis share a block's work, and so how its inputs and outputs lie on that axis.
enum class Split : uint8_t {
  kNone,  // each rank does all of the work: it reads and gives wholes, and all ranks have the same gradients
  kCut,  // each rank has a part of the weights: it reads wholes and gives a partial sum, also in backward (gives_heads)
  kSequence,  // each rank has a part of the rows: it reads and gives shards; gradients of its weights are partial sums
};

struct BlockShape {
  std::string name;  // "embedding", "h.3", "head"; a part of a layer is "h.3.attention"
  // Lists what a decoder's block runs, in order: "embedding", "positions", the parts of a layer
  // (nn/transformer_block.h), "norm_f", "head". Empty in other models.
  std::vector<std::string> parts = {};
  std::vector<int> groups = {};  // groups that it reads, as indices into ModelTable::groups
  int64_t input_bytes = 0;       // bytes of a micro-batch: tokens for the first block, else activations
  int64_t output_bytes = 0;      // 0 for the loss block
  int64_t graph_bytes = 0;       // bytes kept for backward, the input included; 0 for the loss block
  // The backward pass of a block may run in two halves: the first makes the gradients of inputs, the second those of
  // its matrices. This counts the bytes of inputs and output gradients of matrices that the second half reads; 0 where
  // the first half makes all gradients.
  int64_t pending_bytes = 0;
  // Counts the scratch bytes of the first half, beside graph_bytes and pending_bytes; negative where these share
  // memory.
  int64_t first_half_scratch_bytes = 0;
  int64_t second_half_scratch_bytes = 0;  // scratch bytes of the second half, beside pending_bytes
  // Counts the bytes of attention's T x T matrices: in graph_bytes, or with selective recompute in scratch.
  int64_t score_bytes = 0;
  // Counts the bytes of the rows of its weights that a forward looks up by index; 0 where passes read all weights.
  int64_t looked_up_bytes = 0;
  // Returns how many bytes a pass reads of weights that have so many.
  int64_t bytes_read(int64_t weight_bytes) const {
    return looked_up_bytes > 0 ? std::min(looked_up_bytes, weight_bytes) : weight_bytes;
  }
  bool backward_reads_weights = true;  // false: its gradients follow from indices alone
  PassCost forward = {};               // for the loss block: loss, input and weight gradients together
  PassCost backward = {};              // zero for the loss block
  PassCost without_graph = {};  // a forward that keeps no graph; for the loss block: logits of one row a sequence
  int64_t cache_bytes = 0;      // bytes of keys and values of a micro-batch, where a causal attention makes them
  int64_t logits_bytes = 0;     // bytes of fp32 logits, one row a sequence; 0 for all but the loss block
  bool is_loss() const { return output_bytes == 0; }
  std::vector<InnerCollective> inner = {};
  // Number of blocks into which program_table() (build_model_table.h) cuts this one where ranks share it; each has
  // passes of its own.
  int num_program_blocks = 1;
  // Index of its layer in the chain of whole layers: embedding 0, h.0 1, .., head last; not the number in its name.
  int layer = -1;
  // Lists the tensors that it reads, in order; empty = the first tensor of the block before it, or of the batch.
  std::vector<TensorId> inputs = {};
  std::vector<TensorShape> outputs = {};  // tensors that it gives; empty = one, of output_bytes
  // Lists tensors among its inputs and outputs that its graph refers to, where a trace has found them. graph_bytes
  // counts them, too, but their memory is one with the activation's, and that of other graphs.
  std::vector<TensorId> kept = {};
  std::vector<ParameterShape> buffers = {};  // tensors that passes change and no optimizer updates (nn::Buffer)
  Split split = Split::kNone;
  // True, for a block that is kCut: each rank of the tensor axis gives the tensor of its own heads, in place of a
  // partial sum. The block that reads it is kCut, too, and reads these heads. So do their gradients go back.
  bool gives_heads = false;
  // Where context-parallel ranks share the tokens of each sequence: true = the block works on all tokens of a part of
  // the heads; false = on a part of the tokens.
  bool by_heads = false;
  // True: these ranks run each pass of the block together, since keys and values pass around them inside it (`inner`).
  bool in_ring = false;
  // True: ranks that share the tokens of sequences, of the context or the tensor axis, run each pass of the block
  // together, since its router needs the choices of whole ones.
  bool shares_choices = false;
  // Bytes of what its router chooses for a micro-batch, which a pass that is computed again takes over; 0 without a
  // router.
  int64_t routing_bytes = 0;
  // True, for experts that expert-parallel ranks share: the block works on the rows of all these ranks whose experts
  // this one holds (program::Dimension::kExperts). The block before it routes its own rows, and a block after it
  // combines them.
  bool by_experts = false;
  int64_t exchanged_bytes = 0;  // bytes of these rows at most, where all tokens choose experts of one rank
};

}  // namespace herd::spec
