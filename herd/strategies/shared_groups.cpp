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
  std::map<int, std::vector<Value>> gradients;  // by axis, as the updates read them: whole, or a shard
  for (const Op& op : step.ops) {
    if (op.kind != OpKind::kStep) continue;
    for (const Value& value : op.reads) {
      const auto shared = axis_of_group_.find(value.index);
      if (value.kind != ValueKind::kGradient || shared == axis_of_group_.end()) continue;
      if (step.mesh.index(shared->second, step.rank) >= 0) gradients[shared->second].push_back(value);
    }
  }
  for (const auto& [axis, values] : gradients) {
    const auto first_step = std::ranges::find(step.ops, OpKind::kStep, &Op::kind);
    step.ops.insert(
        first_step,
        {.kind = OpKind::kAllReduce, .lane = program::Lane::kReduce, .reads = values, .writes = values, .axis = axis});
  }
  return step;
}

int axis_of_tied_groups(const spec::Layout& layout) { return layout.tied_axis; }

Technique tied_groups_row() {
  return {.name = "tied groups",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            const int axis = axis_of_tied_groups(step.layout);
            if (axis == kNoAxis) return nullptr;
            return std::make_unique<SharedGroups>(axis, step.stages.shared_groups);
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
            std::map<int, int> copied = axes_of_copies(step.model, step.layout);
            if (!step.split || copied.empty()) return nullptr;
            return std::make_unique<SharedGroups>(std::move(copied));
          },
          .extend_proof = [](const StepContext&, program::Proof& proof) { proof.copies_summed = true; }};
}

}  // namespace herd::strategies
