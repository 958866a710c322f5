// The layer table of a model: its blocks in order, their parameter groups, and what each costs to run on one rank. The
// same model is written with tensors in herd/models; a test there proves that names, shapes and FLOPs agree.
// B sequences and T tokens of a micro-batch, D width, F feed-forward width, V vocabulary, H heads.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/spec/run_file.h"

namespace herd::spec {

// Indices of a parameter's cut_dim that are cut by themselves (q, k or v). Each part of them is on `copies` neighbours
// of the tensor axis: more than one where there are fewer key and value heads than ranks.
struct Segment {
  int64_t size = 0;
  int copies = 1;
};

struct ParameterShape {
  std::string name;                    // "h.3.attn.qkv.weight"
  std::vector<int64_t> sizes;          // of the whole parameter
  int cut_dim = -1;                    // the dimension that tensor-parallel ranks share; -1 = whole on each of them
  std::vector<Segment> segments = {};  // of cut_dim, one after the other; empty = all of it is one
  int64_t first = 0;                   // index of cut_dim where they begin: others of this name are in another group
  int64_t elements() const;            // of its segments
};

// Parameters that are gathered, reduced and stepped together: those of one block, except that a tied embedding is a
// group of its own, which the first and the last block read.
struct ParameterGroupShape {
  std::string name;  // "embedding", "h.3", "head", "wte"
  std::vector<ParameterShape> parameters;
  bool frozen = false;                     // not trained: no gradient, no states (frozen.h)
  int64_t elements() const;                // whole
  int64_t elements_of_rank(int tp) const;  // the most that one of `tp` ranks has
  int copies() const;                      // the most that any of its segments has
};

struct IndexSpan {
  int64_t begin = 0, end = 0;  // [begin, end)
  bool operator==(const IndexSpan&) const = default;
};

// Indices of cut_dim that the rank at `place` of `tp` holds, a span of each segment; none of a parameter that is whole.
// Of a segment of n indices in c copies the place p has part p / c of tp / c: [n q / r, n (q + 1) / r) with q = p / c,
// r = tp / c, rounded down.
std::vector<IndexSpan> cut_spans(const ParameterShape& parameter, int tp, int place);

// What one pass over a block costs on one rank, for one micro-batch.
struct Cost {
  double matmul_flops = 0;     // multiply and add count as 2
  double attention_flops = 0;  // inside the attention kernel; a causal flash kernel skips the masked half
  double memory_bytes = 0;     // read and written by what is bound by memory: norms, activations, sums, optimizer
  int64_t scratch_bytes = 0;   // most that is held beyond inputs and outputs while it runs
};

// Collectives inside a block's pass, which no Program sees since autograd issues them.
struct InnerCollective {
  std::string axis;               // "tp", "cp"
  bool reduces = true;            // an all-reduce; else an all-gather
  int64_t bytes = 0;              // of the whole message
  int forward = 0, backward = 0;  // how often in each pass
};

enum class Attention : uint8_t {
  kFlash,  // by blocks: keeps q, k, v, the output and one number a row
  kMath,   // holds the T x T probabilities of every head
};

// How the ranks of the tensor axis share a block's work, and so what it reads and gives along that axis.
enum class Split : uint8_t {
  kNone,      // each rank does all of it: reads and gives wholes, and all have the same gradients
  kCut,       // each rank has a part of the weights: reads wholes and gives a partial sum; so does its backward
  kSequence,  // each rank has a part of the rows: reads and gives shards; gradients of its weights are partial sums
};

struct BlockShape {
  std::string name;              // "embedding", "h.3", "head"; of a part of a layer "h.3.attention"
  std::vector<int> groups = {};  // what it reads, indices into ModelTable::groups
  int64_t input_bytes = 0;       // of a micro-batch: tokens for the first block, else activations
  int64_t output_bytes = 0;      // 0 for the loss block
  int64_t graph_bytes = 0;       // kept for backward, the input included; 0 for the loss block
  int64_t pending_bytes = 0;     // inputs and output gradients of its matrices, from which their gradients can be made
                                 // later than its input's; 0 where they are made at once
  int64_t split_scratch_bytes = 0;  // of that first half, beside graph and pending; negative, since these share inputs
  int64_t late_scratch_bytes = 0;   // of the second half, beside pending
  int64_t score_bytes = 0;  // attention's T x T matrices: in graph_bytes, or with selective recompute in scratch
  bool backward_reads_weights = true;  // false: its gradients follow from indices alone
  Cost forward = {};                   // of the loss block: loss, input and weight gradients together
  Cost backward = {};                  // of the loss block: nothing
  bool is_loss() const { return output_bytes == 0; }
  std::vector<InnerCollective> inner = {};
  int layer = -1;                // its place in the chain of whole layers: embedding 0, h.0 1, .., head last
  std::vector<int> inputs = {};  // activations it reads: 0 the tokens, b + 1 what block b gives; empty = that before it
  Split split = Split::kNone;
};

struct ModelTable {
  std::vector<BlockShape> blocks;  // embedding, transformer blocks, head (final norm, output layer, loss)
  std::vector<ParameterGroupShape> groups;
  DType compute = DType::kF32;   // of weights and activations
  DType gradient = DType::kF32;  // of weights' gradients
  int tp = 1;                    // ranks that share each block's heads and feed-forward width
  int64_t micro_batch = 1;       // B
  int64_t tokens = 0;            // B*T of this rank
  int64_t target_bytes = 0;      // of a micro-batch
  Attention attention = Attention::kFlash;
  bool recomputes_attention = false;        // in backward, instead of keeping its T x T matrices: selective recompute
  int64_t parameters() const;               // of the model
  int64_t frozen_parameters() const;        // of them, those that are not trained
  int first_trained() const;                // block that reads a group that is trained; blocks.size() where none does
  int64_t group_elements(int group) const;  // on this rank
  std::vector<int> inputs_of(int block) const;
  bool is_split() const;  // whether tensor parallelism has made its layers finer
  double flops() const;   // of this rank, one micro-batch, forward and backward
};

// What runs the products: a CPU computes fp16 ones, and attention, in fp32, by copies.
enum class Kernels { kCpu, kDevice };

// B sequences a micro-batch. Element size from strategy.precision and gradient_precision, shares of a rank from mesh.tp
// (heads, feed-forward width and vocabulary cut; norms and the residual stream whole) and mesh.cp (T cut). The
// attention is kMath with dropout, since only that form takes a mask; else kFlash. strategy.recompute = "selective"
// leaves its T x T matrices out of the graph; backward computes attention again. Throws kBadConfig for a model.kind
// that has no table, and where tp does not divide heads and ffn, where it neither divides kv_heads nor is a multiple of
// them, or cp does not divide the context.
ModelTable model_table(const RunFile& run, int64_t micro_batch, Kernels kernels = Kernels::kCpu);

// The chain that programs are made of: that of model_table(), but where tensor parallelism cuts the layers of a decoder
// each of them is norm_1, attention, add_1, norm_2, mlp, add_2, so that the collectives between these are ops.
// Parameters that are cut, those that are whole, and keys and values of which ranks hold copies form groups of their
// own, since a group lies one way.
//   Of R rows, D width, a layer's graph keeps R*D elements in each norm's input and each gathered input, 1/tp of what
//   lies between; with sequence parallelism (strategy.sequence_parallel) the norms' inputs are shards of ceil(R/tp)
//   rows, and without strategy.keep_gathered so are gathered inputs, beside the graph.
// Throws as model_table() does. Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2.
ModelTable program_table(const RunFile& run, int64_t micro_batch, Kernels kernels = Kernels::kCpu);

// Ranks of the tensor axis that hold the same key and value heads: tp / kv_heads where there are fewer of these than
// ranks, else 1.
int key_copies(const RunFile& run);

// Rows of logits that the loss block holds at a time: `rows` in as few equal pieces as keep to 64 MiB of fp32.
int64_t loss_chunk_rows(int64_t vocab, int64_t rows);

}  // namespace herd::spec
