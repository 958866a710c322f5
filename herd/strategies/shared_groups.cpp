#include "herd/strategies/shared_groups.h"

#include <algorithm>

#include "herd/strategies/tensor_parallel.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

std::string SharedGroups::name() const { return "shared groups"; }

program::Program SharedGroups::rewrite(program::Program step) const {
  if (step.mesh.index(axis_, step.rank) < 0) return step;
  std::vector<Value> gradients;  // as the updates read them: whole, or a shard
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kStep) continue;
    for (const Value& value : op.reads) {
      const bool shared = std::binary_search(groups_.begin(), groups_.end(), value.index);
      if (value.kind == ValueKind::kGradient && shared) gradients.push_back(value);
    }
  }
  if (gradients.empty()) return step;
  const auto first_step =
      std::find_if(step.ops.begin(), step.ops.end(), [](const Op& op) { return op.kind == OpKind::kStep; });
  step.ops.insert(first_step, {.kind = OpKind::kAllReduce,
                               .lane = program::Lane::kReduce,
                               .reads = gradients,
                               .writes = gradients,
                               .axis = axis_});
  return step;
}

Technique tied_groups_row() {
  return {.name = "tied groups",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.layout.tied_axis == kNoAxis) return nullptr;
            return std::make_unique<SharedGroups>(step.layout.tied_axis, step.stages.shared_groups);
          },
          .extend_proof = [](const StepContext&, program::Proof& proof) { proof.stages_summed = true; }};
}

Technique sequence_parallel_groups_row() {
  return {.name = "groups of sequence blocks",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            std::vector<int> shared = groups_of_sequence_blocks(step.model);
            if (!step.split || shared.empty()) return nullptr;
            return std::make_unique<SharedGroups>(step.layout.tensor_axis, std::move(shared));
          },
          .extend_proof = [](const StepContext&, program::Proof& proof) { proof.rows_summed = true; }};
}

Technique copied_groups_row() {
  return {.name = "copied groups",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            std::vector<int> copied = groups_with_copies(step.model);
            if (!step.split || copied.empty()) return nullptr;
            return std::make_unique<SharedGroups>(step.layout.key_copies_axis, std::move(copied));
          },
          .extend_proof = [](const StepContext&, program::Proof& proof) { proof.copies_summed = true; }};
}

}  // namespace herd::strategies
