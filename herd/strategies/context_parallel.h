// Context parallel over one axis of P ranks, which share the tokens of each sample. Gradients of weights are summed
// over these ranks as over data ranks (data_parallel.h, zero1.h), in one sum over both. Every block works on this
// rank's tokens, but attention needs those of all ranks. For T tokens, width h, h_kv of keys, e bytes an element, and
// for each layer and micro-batch a rank sends
//   by all-to-all, where attention works on all tokens of this rank's heads (spec::BlockShape::by_heads):
//     forward   queries, keys and values, then outputs   2(1 + kv_heads/heads) * T/P*h*e * (P-1)/P
//     backward  their gradients, as much again; a recomputed forward, too
//     Where there are fewer key heads than ranks, each counts as often as ranks need it.
//   in a ring, where the keys and values of other ranks pass by inside the passes of attention, which all ranks of the
//   axis run together (spec::BlockShape::in_ring, nn/ring_attention.h):
//     forward   keys and values                          2(P-1)/P * T*h_kv*e
//     backward  as much again, and their gradients home, in fp32   2T*h_kv*4
// Routers whose losses or capacity are of whole sequences gather the choices of all tokens, 8 bytes each, inside the
// first pass of their block (spec::BlockShape::shares_choices, nn/router.h); beside tensor ranks, which have parts of
// this rank's rows, along the product of both axes.
// Sources: Jacobs et al. 2023, arXiv:2309.14509; Liu, Zaharia & Abbeel 2023, arXiv:2310.01889.
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class ContextParallel final : public Strategy {
 public:
  // `model` is the chain of the step that will be rewritten (spec::program_table); it is not kept.
  // Along `sequence_axis` are all ranks that have parts of the same sequences (spec::Layout).
  ContextParallel(int axis, int sequence_axis, const spec::ModelTable& model);
  std::string name() const override;
  // REQUIRES a step whose activations the axis does not cut.
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_, sequence_axis_;
  std::vector<program::Dimension> cut_by_;           // by block
  std::vector<std::vector<spec::TensorId>> inputs_;  // by block
  std::vector<bool> in_ring_, shares_choices_;       // by block
};

Technique context_parallel_row();  // applies where mesh.cp > 1

}  // namespace herd::strategies
