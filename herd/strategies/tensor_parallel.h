// Tensor parallel over one axis of t ranks, with or without sequence parallel. It places activations along the axis as
// wholes, shards or partial sums, and writes the collectives between them. spec::Split says how ranks share a block.
// For T token rows, width h (D in herd/nn) and e bytes an element, and for each layer and micro-batch:
//   A cut block (Split::kCut) reads wholes and gives partial sums, forward and backward. Between the parts of an
//   attention each rank has the tensors of its own heads instead (BlockShape::gives_heads), which need no collective.
//   Without sequence parallel these sums are all-reduced. A rank sends 4 * 2(t-1)/t * T*h*e bytes.
//   With it, values between cut blocks are shards of ceil(T/t) rows. A cut block gathers the shards that it reads, and
//   its sums are reduce-scattered. These are 4 gathers and 4 reduce-scatters of (t-1)/t * T*h*e bytes each.
//   With keeps_gathered the graph of a cut block keeps its gathered input, T*h*e bytes. Without it the graph keeps only
//   the shard, 1/t of that, and backward gathers it again: 2 more gathers.
//   Where the backward of a cut block follows its recompute at once, it reads what the recompute has gathered. That
//   saves 1 gather.
//   The ranks of the axis compute the loss of a cut vocabulary together. Some gradients stay partial sums, which
//   shared_groups.h sums. They are those of whole weights of blocks that work on shards of rows. They are also those of
//   keys and values that several ranks hold, each for its own query heads.
// Sources: Shoeybi et al. 2019, arXiv:1909.08053, section 3; Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.
// Threads: pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class TensorParallel final : public Strategy {
 public:
  // `model` is the chain of the step that will be rewritten (spec::program_table); it is not kept. With
  // `keeps_gathered`, graphs keep gathered inputs; without it, backward reads them gathered again.
  TensorParallel(int axis, const spec::ModelTable& model, bool keeps_gathered = true);
  std::string name() const override;
  // REQUIRES a step whose activations are all whole.
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  std::vector<spec::Split> splits_;  // by block
  std::vector<bool> gives_heads_;    // by block
  std::vector<std::vector<spec::TensorId>>
      inputs_;                        // by block: activations that backward reads again; empty = graphs keep all
  std::set<spec::TensorId> wholes_;   // that no block cuts
  std::vector<bool> shares_choices_;  // by block
  bool sequence_parallel_;
  int64_t rows_;  // token rows of a micro-batch
};

// Returns the groups of which several ranks hold the same part, with the axis of these ranks: key_copies_axis, or the
// tensor axis where all of it do. Their gradients are partial sums, of which each of these ranks has the term of its
// own query heads.
std::map<int, int> axes_of_copies(const spec::ModelTable& model, const spec::Layout& layout);

// Returns the tensors of which each tensor rank has all (spec::TensorShape::is_whole).
std::set<spec::TensorId> whole_tensors(const spec::ModelTable& model);

// Returns the groups of blocks that work on shards of rows, ascending. Their gradients are partial sums along the axis.
std::vector<int> groups_of_sequence_blocks(const spec::ModelTable& model);

Technique tensor_parallel_row();  // applies where mesh.tp > 1

}  // namespace herd::strategies
