// The layer table of a model: its blocks in order, their parameter groups, and what each costs to run. The same model
// is written with tensors in herd/models; a test there proves that names, shapes and FLOPs agree.
// B sequences and T tokens of a micro-batch, D width, F feed-forward width, V vocabulary, H heads.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/spec/run_file.h"

namespace herd::spec {

struct ParameterShape {
  std::string name;  // "h.3.attn.qkv.weight"
  std::vector<int64_t> sizes;
  int64_t elements() const;
};

// Parameters that are gathered, reduced and stepped together: those of one block, except that a tied embedding is a
// group of its own, which the first and the last block read.
struct ParameterGroupShape {
  std::string name;  // "embedding", "h.3", "head", "wte"
  std::vector<ParameterShape> parameters;
  int64_t elements() const;
};

// What one pass over a block costs on one rank, for one micro-batch.
struct Cost {
  double matmul_flops = 0;     // multiply and add count as 2
  double attention_flops = 0;  // inside the attention kernel; a causal flash kernel skips the masked half
  double memory_bytes = 0;     // read and written by what is bound by memory: norms, activations, sums, optimizer
  int64_t scratch_bytes = 0;   // most that is held beyond inputs and outputs while it runs
};

enum class Attention : uint8_t {
  kFlash,  // by blocks: keeps q, k, v, the output and one number a row
  kMath,   // holds the T x T probabilities of every head
};

struct BlockShape {
  std::string name;              // "embedding", "h.3", "head"
  std::vector<int> groups = {};  // what it reads, indices into ModelTable::groups
  int64_t input_bytes = 0;       // of a micro-batch: tokens for the first block, else activations
  int64_t output_bytes = 0;      // 0 for the loss block
  int64_t graph_bytes = 0;       // kept for backward, the input included; 0 for the loss block
  Cost forward = {};             // of the loss block: loss, input and weight gradients together
  Cost backward = {};            // of the loss block: nothing
};

struct ModelTable {
  std::vector<BlockShape> blocks;  // embedding, `layers` transformer blocks, head (final norm, output layer, loss)
  std::vector<ParameterGroupShape> groups;
  DType compute = DType::kF32;  // of weights, gradients and activations
  int64_t micro_batch = 1;      // B
  int64_t tokens = 0;           // B*T
  int64_t target_bytes = 0;     // of a micro-batch
  Attention attention = Attention::kFlash;
  int64_t parameters() const;
  double flops() const;  // of one micro-batch, forward and backward
};

// B sequences a micro-batch. The attention is kMath with dropout, since only that form takes a mask; else kFlash.
// Throws kBadConfig for a model.kind that has no table yet.
ModelTable model_table(const RunFile& run, int64_t micro_batch);

// Rows of logits that the loss block holds at a time: `rows` in as few equal pieces as keep to 64 MiB of fp32.
int64_t loss_chunk_rows(int64_t vocab, int64_t rows);

}  // namespace herd::spec
