// Context parallel over one axis of P ranks, by all-to-all: ranks share the tokens of each sample. Every block works on
// this rank's tokens, but for attention, which works on all tokens of this rank's heads (spec::BlockShape::by_heads).
// An all-to-all lies between the two, forward and backward. For T tokens, width h, e bytes an element, and for each
// layer and micro-batch a rank sends
//   forward   queries, keys and values, then outputs   2(1 + kv_heads/heads) * T/P*h*e * (P-1)/P
//   backward  their gradients, as much again; a recomputed forward, too
// Where there are fewer key heads than ranks, each counts as often as ranks need it. Gradients of weights are summed
// over the ranks of this axis as over data ranks (data_parallel.h, zero1.h), in one sum over both. Source: Jacobs et
// al. 2023, arXiv:2309.14509.   Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class ContextParallel final : public Strategy {
 public:
  // `model` is the chain of the step that will be rewritten (spec::program_table); it is not kept.
  ContextParallel(int axis, const spec::ModelTable& model);
  std::string name() const override;
  // REQUIRES a step whose activations the axis does not cut.
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  std::vector<program::Dimension> cut_by_;           // by block
  std::vector<std::vector<spec::TensorId>> inputs_;  // by block
};

Technique context_parallel_row();  // applies where mesh.cp > 1

}  // namespace herd::strategies
