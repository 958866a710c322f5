// Tensor parallel over one axis of t ranks, with or without sequence parallel: which values are whole, shards or
// partial along it, and the collectives between them. The model's blocks say how ranks share them (spec::Split).
//   A cut block reads wholes and gives partial sums, forward and backward.
//   Without sequence parallel these are all-reduced: of T rows, width h and e bytes an element a layer sends
//     4 * 2(t-1)/t * T*h*e bytes a rank and micro-batch, forward and backward.
//   With it, what lies between cut blocks are shards of ceil(T/t) rows: each sum is reduce-scattered, each shard
//   gathered
//     before the cut block reads it: 4 gathers and 4 reduce-scatters of (t-1)/t * T*h*e bytes. A gathered input is in
//     the block's graph, T*h*e bytes; or its shard stays, 1/t of that, and it is gathered again before backward, which
//     then reads it beside a shard of the graph: 2 gathers a layer more.
//   The loss of a vocabulary that is cut is computed by all ranks of the axis together.
//   Gradients of weights that are whole are partial sums where blocks work on shards of rows, and those of keys and
//   values that several ranks hold, each for its own query heads: shared_groups.h sums them.
// Sources: Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.
#pragma once

#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class TensorParallel final : public Strategy {
 public:
  // REQUIRES a step whose activations are all whole. `model`: the chain that the step is of (spec::program_table).
  // `keeps_gathered`: graphs keep the inputs that are gathered.
  TensorParallel(int axis, const spec::ModelTable& model, bool keeps_gathered = true);
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  std::vector<spec::Split> splits_;       // of blocks
  std::vector<std::vector<int>> inputs_;  // of blocks: activations that backward reads again; empty = graphs keep all
  bool sequence_;
  int64_t rows_;  // of a micro-batch
};

// Groups that several ranks hold the same part of (spec::Layout::keys): their gradients are partial sums among these,
// each of its own query heads. Ascending.
std::vector<int> groups_of_copies(const spec::ModelTable& model);

// Groups whose gradients are partial sums along the axis: blocks that work on shards of rows read them. Ascending.
std::vector<int> groups_of_sequence_blocks(const spec::ModelTable& model);

Technique tensor_parallel_row();

}  // namespace herd::strategies
