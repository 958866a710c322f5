#include "herd/strategies/secondary_shard.h"

#include <set>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/program_names.h"
#include "herd/strategies/each_pass.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;

program::Program SecondaryShard::rewrite(program::Program step) const {
  const program::Placement primary = program::kWhole.shard_on(axis_), secondary = program::kWhole.shard_on(local_axis_);
  const int hosts = step.mesh.size(hosts_axis_);
  std::set<int> in_host;  // groups that each host holds
  std::vector<Op> ops;
  for (Op& op : step.ops) {
    const bool gathers = op.kind == OpKind::kAllGather && op.axis == axis_ && is_whole_weight(op.writes.at(0)) &&
                         !step.values.at(op.writes[0]).persistent;
    if (gathers) {
      const int group = op.writes[0].index;
      const Value shard = program::weight(group, primary), of_host = program::weight(group, secondary);
      if (in_host.insert(group).second) {
        step.values[of_host] = {.bytes = hosts * step.values.at(shard).bytes};
        ops.push_back(
            {.kind = OpKind::kAllGather, .lane = op.lane, .reads = {shard}, .writes = {of_host}, .axis = hosts_axis_});
      }
      op.reads = {of_host};
      op.axis = local_axis_;
    }
    ops.push_back(std::move(op));
  }
  step.ops = std::move(ops);
  return step;
}

Technique secondary_shard_row() {
  return {.name = "secondary shard",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (!step.run.strategy.secondary_shard || step.layout.gradient_ranks() == 1) return nullptr;
            if (const int stage = zero_stage(step.run, step.layout); stage < 3)
              throw Error(Code::kBadConfig,
                          "strategy.secondary_shard is of weights that strategy.zero = 3 gathers for each pass, and "
                          "strategy.zero = " +
                              std::to_string(stage) + " keeps them whole\n  fix: strategy.secondary_shard = false");
            if (step.layout.cp > 1)
              throw Error(Code::kBadConfig,
                          "strategy.secondary_shard beside mesh.cp = " + std::to_string(step.layout.cp) +
                              " is not in this version\n  fix: mesh.cp = 1, or strategy.secondary_shard = false");
            if (step.layout.local_axis == kNoAxis) return nullptr;  // no gather leaves its host, or every one has to
            return std::make_unique<SecondaryShard>(shard_axis(step.run, step.layout), step.layout.local_axis,
                                                    step.layout.hosts_axis);
          },
          .extend_proof =
              [](const StepContext& step, program::Proof& proof) {
                proof.hops = {.between = step.layout.hosts_axis, .within = step.layout.local_axis};
              },
          .supports = {{"strategy.secondary_shard", {}}, {"mesh.ranks_per_host", {}}}};
}

}  // namespace herd::strategies
