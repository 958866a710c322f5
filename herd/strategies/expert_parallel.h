// Expert parallel over one axis of P ranks, of which each holds 1/P of every layer's experts. Each rank works on its
// own samples; inside the passes of a layer rows of tokens go to the ranks of their experts and their outputs come
// back, so all ranks of the axis run these passes together (spec::BlockShape::exchanges_rows, nn/experts_of_ranks.h).
// For each row whose expert another rank holds, a rank sends 4 * width * bytes of an element: 2 in forward, 2 in
// backward; a recomputed forward 2 more; less between hosts, to which forward sends each token once. The exchanges are
// no ops of their own: how many rows each moves is known only while it runs, and their order inside a pass is fixed.
// What they do with counts is a pure function (nn/expert_exchange.h), whose test follows each token. The gradient of an
// expert has the contributions of all P ranks at once, so it is summed over the ranks that hold the same experts alone
// (spec::Layout::expert_sum_axis). ZeRO cuts experts over these ranks, all others over the ranks that cut them without
// experts (ShardAxes in zero1.h). Source: Lepikhin et al. 2020, arXiv:2006.16668; Liu et al. 2025, arXiv:2504.14960.
// Threads: pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

class ExpertParallel final : public Strategy {
 public:
  // `model` is the chain of the step that will be rewritten; it is not kept.
  ExpertParallel(int axis, const spec::ModelTable& model);
  std::string name() const override;
  program::Program rewrite(program::Program step) const override;

 private:
  int axis_;
  std::vector<bool> exchanges_rows_;  // by block
};

// Returns the groups of which ranks of mesh.ep hold parts, ascending.
std::set<int> groups_of_experts(const spec::ModelTable& model);

// Returns what beside mesh.ep > 1 this version refuses.
std::optional<spec::Unsupported> unsupported_with_expert_ranks(const spec::RunFile& run);

Technique expert_parallel_row();  // applies where mesh.ep > 1

}  // namespace herd::strategies
