// Makes the model table of a run file's model. Threads: pure.
#pragma once

#include <cstdint>

#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::spec {

// Names the device that runs matrix products: a CPU computes fp16 products, and attention, in fp32 on copies.
enum class Kernels { kCpu, kDevice };
Kernels kernels_of(const RunFile& run);  // returns those of device.kind; auto counts as the CPU

// Returns the table for micro-batches of B sequences. strategy.precision and gradient_precision give element sizes.
// mesh.tp cuts heads, feed-forward width and vocabulary, and leaves norms and the residual stream whole. With
// strategy.sequence_parallel each rank has a part of their rows; without strategy.keep_gathered it keeps only its
// own part of what it gathers. mesh.cp cuts T, the tokens of a sequence, and pads them to a multiple of it. Attention
// is kMath with dropout, since only that form takes a mask; else kFlash. With strategy.recompute = "selective" the
// graph has no T x T matrices, and backward computes attention again. Throws kBadConfig for a model.kind that has no
// table. Also throws it where tp does not divide heads and ffn, where neither of tp and kv_heads divides the other, or
// where cp exceeds the context.
ModelTable model_table(const RunFile& run, int64_t micro_batch, Kernels kernels = Kernels::kCpu);

// Returns the chain that programs are made of. It is that of model_table(), but where tensor parallelism cuts a
// decoder's layers, each becomes norm_1, attention, add_1, norm_2, mlp, add_2. So collectives between these are ops.
// Take this table to build or verify programs, and model_table() where whole layers will do, as in equations. All
// parameters of a group lie one way, so cut ones, whole ones, and copied keys and values form groups of their own.
//   With R rows and D width, a layer's graph keeps R*D elements in each norm's input and each gathered input, and 1/tp
//   of what lies between. With strategy.sequence_parallel the norms' inputs are shards of ceil(R/tp) rows; without
//   strategy.keep_gathered a gathered input is kept as such a shard, too, which is no part of the graph.
// Where context-parallel ranks share the tokens of a decoder, each layer becomes qkv, attention, output: attention
// works on all tokens of a part of the heads, the others on a part of the tokens. Groups are those of model_table().
// Where both cut it, attention above becomes qkv, attention, projection: heads are cut by tp first, and R are the rows
// of a rank's tokens.
// Where expert-parallel ranks share the experts of a layer, all these parts are blocks of their own, with route,
// experts and combine in place of the feed-forward part. Throws as model_table() does, and where
// exchanges_whole_heads() is false. Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2.
ModelTable program_table(const RunFile& run, int64_t micro_batch, Kernels kernels = Kernels::kCpu);

// Tells whether mesh.cp divides the heads of a tensor rank, and divides its key heads or is a multiple of them. Other
// kinds of strategy.context than all_to_all need none of it.
bool exchanges_whole_heads(const RunFile& run);

}  // namespace herd::spec
