#include "herd/strategies/data_parallel.h"

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/strategies/expert_parallel.h"
#include "herd/strategies/replicas.h"
#include "herd/strategies/server_sync.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

DataParallel::DataParallel(int axis, int64_t bucket_bytes, int expert_axis, std::set<int> of_experts)
    : axis_(axis), bucket_bytes_(bucket_bytes), expert_axis_(expert_axis), of_experts_(std::move(of_experts)) {
  if (bucket_bytes < 1) {
    throw Error(Code::kBadConfig,
                "strategy.bucket must be >= 1 byte, got " + std::to_string(bucket_bytes) + "\n  fix: \"25MiB\"");
  }
}

std::string DataParallel::name() const {
  return "data_parallel, buckets of " + format_bytes(static_cast<double>(bucket_bytes_));
}

program::Program DataParallel::rewrite(program::Program step) const {
  std::map<Value, size_t> last_writer;  // for each gradient, the index of the op that adds to it last
  size_t last_backward = 0;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    for (const Value& value : step.ops[i].writes) {
      if (value.kind != ValueKind::kGradient || step.ops[i].micro_batch < 0) continue;
      last_writer[value] = i;
      last_backward = i;
    }
  }
  struct Bucket {
    std::vector<Value> gradients;
    int64_t bytes = 0;
  };
  std::vector<Op> ops;
  std::map<int, Bucket> buckets;  // by axis
  for (size_t i = 0; i < step.ops.size(); ++i) {
    ops.push_back(step.ops[i]);
    for (const Value& value : step.ops[i].writes) {
      const auto at = last_writer.find(value);
      if (at == last_writer.end() || at->second != i) continue;
      const int axis = of_experts_.contains(value.index) ? expert_axis_ : axis_;
      if (axis == kNoAxis) continue;
      buckets[axis].gradients.push_back(value);
      buckets[axis].bytes += step.values.at(value).bytes;
    }
    for (auto& [axis, bucket] : buckets) {
      if (bucket.gradients.empty() || (bucket.bytes < bucket_bytes_ && i != last_backward)) continue;
      ops.push_back({.kind = OpKind::kAllReduce,
                     .lane = program::Lane::kReduce,
                     .reads = bucket.gradients,
                     .writes = bucket.gradients,
                     .axis = axis});
      bucket = {};
    }
  }
  step.ops = std::move(ops);
  return step;
}

Technique data_parallel_row() {
  return {.name = "data parallel",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.layout.gradient_ranks() == 1 || uses_servers(step.run, step.layout)) return nullptr;
            const int axis = shard_axis(step.run, step.layout);
            return std::make_unique<DataParallel>(axis == kNoAxis ? step.layout.gradient_axis : axis,
                                                  step.run.strategy.bucket, step.layout.expert_sum_axis,
                                                  groups_of_experts(step.model));
          },
          .extend_proof =
              [](const StepContext& step, program::Proof& proof) {
                proof.data_ranks_summed = !has_replicas(step.run, step.layout);
                proof.summed_axis = shard_axis(step.run, step.layout);
              },
          .supports = {{"mesh.dp", {}}, {"strategy.bucket", {}}},
          .in_equations = true,
          .adapt = [](spec::RunFile& run) { run.mesh.dp = 0; }};
}

}  // namespace herd::strategies
