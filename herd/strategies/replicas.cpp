#include "herd/strategies/replicas.h"

#include <map>

#include "herd/program/collective_message.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;

std::string Replicas::name() const { return "replicas"; }

program::Program Replicas::rewrite(program::Program step) const {
  std::map<Value, size_t> last_writer;  // shard -> the op that adds to it last
  for (size_t i = 0; i < step.ops.size(); ++i) {
    const bool sums = step.ops[i].kind == OpKind::kReduceScatter || step.ops[i].kind == OpKind::kReduce;
    if (!sums || step.ops[i].axis != shards_) continue;
    for (const Value& value : step.ops[i].writes) {
      if (value.kind == program::ValueKind::kGradient) last_writer[value] = i;
    }
  }
  std::vector<Op> ops;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    std::vector<Value> completed_here;
    for (const Value& value : step.ops[i].writes) {
      const auto writer = last_writer.find(value);
      if (writer != last_writer.end() && writer->second == i) completed_here.push_back(value);
    }
    ops.push_back(std::move(step.ops[i]));
    if (completed_here.empty()) continue;
    ops.push_back({.kind = OpKind::kAllReduce,
                   .lane = program::Lane::kReduce,
                   .reads = completed_here,
                   .writes = completed_here,
                   .axis = copies_});
  }
  step.ops = std::move(ops);
  return step;
}

bool has_replicas(const spec::RunFile& run, const spec::Layout& layout) {
  const int axis = shard_axis(run, layout);
  return axis != kNoAxis && axis != layout.gradient_axis;
}

int all_reduced_axis(const spec::RunFile& run, const spec::Layout& layout) {
  if (shard_axis(run, layout) == kNoAxis) return layout.gradient_axis;
  return has_replicas(run, layout) ? layout.replica_axis : kNoAxis;
}

Technique replicas_row() {
  return {.name = "replicas",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (!has_replicas(step.run, step.layout)) return nullptr;
            return std::make_unique<Replicas>(shard_axis(step.run, step.layout),
                                              all_reduced_axis(step.run, step.layout));
          },
          .extend_proof = [](const StepContext&, program::Proof& proof) { proof.data_ranks_summed = true; }};
}

}  // namespace herd::strategies
