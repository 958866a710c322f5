#include "herd/strategies/layer_major.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "herd/program/passes.h"

namespace herd::strategies {

using program::Op;

namespace {

// Holds the ops of one micro-batch, cut where a pass over another layer begins.
class LayerVisits {
 public:
  // `layer`: that of the op's block; -1 for an op of no block, which stays with the pass before it.
  void add(Op op, int layer) {
    if (visits_.empty() || (layer >= 0 && layer_ >= 0 && layer != layer_)) visits_.emplace_back();
    if (layer >= 0) layer_ = layer;
    visits_.back().push_back(std::move(op));
  }

  size_t size() const { return visits_.size(); }
  std::vector<Op>& operator[](size_t visit) { return visits_[visit]; }

 private:
  std::vector<std::vector<Op>> visits_;
  int layer_ = -1;  // of the newest visit
};

bool is_layer_major(const spec::RunFile& run) { return run.strategy.order == "layer_major"; }

}  // namespace

program::Program LayerMajor::rewrite(program::Program step) const {
  std::vector<LayerVisits> micro_batches(static_cast<size_t>(step.micro_batches));
  std::vector<Op> ops, rest;
  for (Op& op : step.ops) {
    const int m = program::micro_batch_of(op);
    if (m < 0) {
      rest.push_back(std::move(op));
      continue;
    }
    const int layer = op.block < 0 ? -1 : layers_[static_cast<size_t>(op.block)];
    micro_batches[static_cast<size_t>(m)].add(std::move(op), layer);
  }
  for (size_t visit = 0; visit < micro_batches[0].size(); ++visit) {
    for (LayerVisits& micro_batch : micro_batches) std::ranges::move(micro_batch[visit], std::back_inserter(ops));
  }
  std::ranges::move(rest, std::back_inserter(ops));
  step.ops = std::move(ops);
  return step;
}

Technique layer_major_row() {
  return {.name = "layer major",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (!is_layer_major(step.run) || step.layout.pp > 1 || step.layout.micro_batches == 1) return nullptr;
            return std::make_unique<LayerMajor>(step.layers);
          },
          .supports = {{"strategy.order", {"layer_major"}}},
          .adapt =
              [](spec::RunFile& run) {
                if (run.mesh.pp > 1) run.strategy.order = "micro_batch_major";
              }};
}

}  // namespace herd::strategies
