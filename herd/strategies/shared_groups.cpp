#include "herd/strategies/shared_groups.h"

#include <algorithm>

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

std::string SharedGroups::name() const { return "shared groups"; }

program::Program SharedGroups::rewrite(program::Program step) const {
  if (step.mesh.index(axis_, step.rank) < 0) return step;
  std::vector<Value> gradients;  // as steps read them: whole, or a shard
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

}  // namespace herd::strategies
