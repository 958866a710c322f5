// Defines the layer table of a model: its blocks in order, their parameter groups, and what each costs to run on one
// rank. The same model is written with tensors in herd/models; a test there proves that names, shapes and FLOPs agree.
// Symbols: B sequences and T tokens of a micro-batch, D width, F feed-forward width, V vocabulary, H heads.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/spec/run_file.h"

namespace herd::spec {

// Describes neighbouring indices of a parameter's cut_dim (q, k or v) that are cut apart from others. `copies`
// neighbours of the tensor axis hold each part: more than 1 where there are fewer key and value heads than ranks.
struct Segment {
  int64_t size = 0;
  int copies = 1;
};

struct ParameterShape {
  std::string name;                    // "h.3.attn.qkv.weight"
  std::vector<int64_t> sizes;          // of the whole parameter
  int cut_dim = -1;                    // dimension that tensor-parallel ranks share; -1 = each rank holds the whole
  std::vector<Segment> segments = {};  // parts of cut_dim, one after the other; empty = one part
  int64_t first = 0;         // index of cut_dim where the segments begin; those before it are in another group
  int64_t elements() const;  // returns the elements of its segments
};

// A group holds parameters that are gathered, reduced and stepped together: those of one block. A tied embedding is a
// group of its own, which the first and the last block read.
struct ParameterGroupShape {
  std::string name;  // "embedding", "h.3", "head", "wte"
  std::vector<ParameterShape> parameters;
  bool frozen = false;                     // not trained: no gradient, no states (frozen.h)
  int64_t elements() const;                // returns the elements of whole parameters
  int64_t elements_of_rank(int tp) const;  // returns the most elements that one of `tp` ranks has
  int copies() const;                      // returns the most copies that any of its segments has
};

struct IndexSpan {
  int64_t begin = 0, end = 0;  // [begin, end)
  bool operator==(const IndexSpan&) const = default;
};

// Returns the indices of cut_dim that the rank at `place` of `tp` holds, a span of each segment; nothing for a whole
// parameter. In a segment of n indices and c copies, place p has part q = p / c of r = tp / c parts. That is [n q / r,
// n (q + 1) / r), rounded down.
std::vector<IndexSpan> cut_spans(const ParameterShape& parameter, int tp, int place);

// Counts what one pass over a block costs on one rank, for one micro-batch.
struct Cost {
  double matmul_flops = 0;     // multiply and add count as 2
  double attention_flops = 0;  // inside the attention kernel; a causal flash kernel skips the masked half
  double memory_bytes = 0;     // read and written by ops that memory limits: norms, activations, sums, optimizer
  int64_t scratch_bytes = 0;   // most bytes held beyond inputs and outputs while it runs
};

// Describes a collective inside a block's pass, which no Program sees since autograd issues it.
struct InnerCollective {
  std::string axis;               // "tp", "cp"
  bool reduces = true;            // an all-reduce; else an all-gather
  int64_t bytes = 0;              // bytes of the whole message
  int forward = 0, backward = 0;  // times that each pass issues it
};

enum class Attention : uint8_t {
  kFlash,  // works by blocks: keeps q, k, v, the output and one number a row
  kMath,   // holds the T x T probabilities of every head
};

// Says how the ranks of the tensor axis share a block's work, and so what it reads and gives along that axis.
enum class Split : uint8_t {
  kNone,      // each rank does all of the work: it reads and gives wholes, and all have the same gradients
  kCut,       // each rank has a part of the weights: it reads wholes and gives a partial sum, also in backward
  kSequence,  // each rank has a part of the rows: it reads and gives shards; gradients of its weights are partial sums
};

struct BlockShape {
  std::string name;              // "embedding", "h.3", "head"; a part of a layer is "h.3.attention"
  std::vector<int> groups = {};  // groups that it reads, as indices into ModelTable::groups
  int64_t input_bytes = 0;       // bytes of a micro-batch: tokens for the first block, else activations
  int64_t output_bytes = 0;      // 0 for the loss block
  int64_t graph_bytes = 0;       // bytes kept for backward, the input included; 0 for the loss block
  // Counts the bytes of inputs and output gradients of its matrices, from which the second half of a backward makes
  // their gradients; 0 where backward makes them at once.
  int64_t pending_bytes = 0;
  // Counts scratch of the first half, beside graph and pending; negative, since these share inputs.
  int64_t split_scratch_bytes = 0;
  int64_t late_scratch_bytes = 0;  // scratch of the second half, beside pending
  // Counts the bytes of attention's T x T matrices: in graph_bytes, or with selective recompute in scratch.
  int64_t score_bytes = 0;
  bool backward_reads_weights = true;  // false: its gradients follow from indices alone
  Cost forward = {};                   // the loss block's holds loss, input and weight gradients together
  Cost backward = {};                  // zero for the loss block
  Cost without_graph = {};   // a forward that keeps no graph; the loss block's gives logits of one row a sequence
  int64_t cache_bytes = 0;   // bytes of keys and values of a micro-batch, where a causal attention makes them
  int64_t logits_bytes = 0;  // fp32, one row a sequence; 0 but for the loss block
  bool is_loss() const { return output_bytes == 0; }
  std::vector<InnerCollective> inner = {};
  int layer = -1;  // place in the chain of whole layers: embedding 0, h.0 1, .., head last
  // Lists the activations that it reads: 0 the tokens, b + 1 the output of block b; empty = the output of the block
  // before it.
  std::vector<int> inputs = {};
  Split split = Split::kNone;
};

struct ModelTable {
  std::vector<BlockShape> blocks;  // embedding, transformer blocks, head (final norm, output layer, loss)
  std::vector<ParameterGroupShape> groups;
  DType compute = DType::kF32;   // type of weights and activations
  DType gradient = DType::kF32;  // type of weights' gradients
  int tp = 1;                    // ranks that share each block's heads and feed-forward width
  int64_t micro_batch = 1;       // B
  int64_t tokens = 0;            // B*T on this rank
  int64_t target_bytes = 0;      // bytes of a micro-batch's targets
  Attention attention = Attention::kFlash;
  // Selective recompute: backward computes the T x T matrices again instead of keeping them.
  bool recomputes_attention = false;
  int64_t parameters() const;         // returns the parameters of the model
  int64_t frozen_parameters() const;  // returns the parameters that are not trained
  int first_trained() const;  // returns the first block that reads a trained group; blocks.size() where none does
  int64_t group_elements(int group) const;  // returns the elements on this rank
  std::vector<int> inputs_of(int block) const;
  bool is_split() const;  // tells whether tensor parallelism has made its layers finer
  double flops() const;   // returns the FLOP of this rank for one micro-batch, forward and backward
};

// Names the device that runs products: a CPU computes fp16 ones, and attention, in fp32, with copies.
enum class Kernels { kCpu, kDevice };

// Returns the table for micro-batches of B sequences. strategy.precision and gradient_precision give element sizes.
// mesh.tp cuts heads, feed-forward width and vocabulary, and leaves norms and the residual stream whole; mesh.cp cuts
// T. Attention is kMath with dropout, since only that form takes a mask; else kFlash. With strategy.recompute =
// "selective" the graph has no T x T matrices, and backward computes attention again.
// Throws kBadConfig for a model.kind that has no table. Also throws it where tp does not divide heads and ffn, where tp
// and kv_heads do not divide each other either way, or cp the context.
ModelTable model_table(const RunFile& run, int64_t micro_batch, Kernels kernels = Kernels::kCpu);

// Returns the chain that programs are made of. It is that of model_table(), but where tensor parallelism cuts a
// decoder's layers, each becomes norm_1, attention, add_1, norm_2, mlp, add_2. So collectives between these are ops.
// All parameters of a group lie one way, so cut ones, whole ones, and copied keys and values form groups of their own.
//   With R rows and D width, a layer's graph keeps R*D elements in each norm's input and each gathered input, and 1/tp
//   of what lies between. With strategy.sequence_parallel the norms' inputs are shards of ceil(R/tp) rows; without
//   strategy.keep_gathered so are gathered inputs, beside the graph.
// Throws as model_table() does. Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2.
ModelTable program_table(const RunFile& run, int64_t micro_batch, Kernels kernels = Kernels::kCpu);

// Counts the tensor-parallel ranks that hold the same key and value heads: tp / kv_heads where there are fewer heads
// than ranks, else 1.
int key_copies(const RunFile& run);

// Returns the rows of logits that the loss block holds at a time: `rows` in the fewest equal pieces of at most 64 MiB
// of fp32.
int64_t loss_chunk_rows(int64_t vocab, int64_t rows);

}  // namespace herd::spec
