#include "herd/strategies/micro_batches.h"

#include <algorithm>

#include "herd/base/error.h"

namespace herd::strategies {

using program::Op;
using program::Value;
using program::ValueKind;

namespace {

std::vector<spec::KeyValue> smaller_micro_batches(const spec::RunFile& run, const RankCounts& ranks) {
  std::vector<spec::KeyValue> sizes;
  if (!spec::order_file_of(run).empty()) return sizes;  // an order in a file is of one number of micro-batches
  const int64_t num_data_ranks = data_ranks(run, ranks);
  const int64_t samples = (run.train.batch + num_data_ranks - 1) / num_data_ranks;
  for (int64_t size = std::min(run.train.micro_batch, samples) / 2; size >= 1; size /= 2) sizes.emplace_back(size);
  return sizes;
}

}  // namespace

MicroBatches::MicroBatches(int count) : count_(count) {
  if (count < 1)
    throw Error(Code::kBadConfig, "a step has at least one micro-batch, got " + std::to_string(count) +
                                      "\n  fix: a positive train.batch and train.micro_batch");
}

std::string MicroBatches::name() const { return "micro_batches " + std::to_string(count_); }

program::Program MicroBatches::rewrite(program::Program step) const {
  step.micro_batches = count_;
  std::map<Value, program::ValueInfo> values;
  for (const auto& [value, info] : step.values) {
    const int copies = value.micro_batch < 0 ? 1 : count_;
    for (int m = 0; m < copies; ++m) {
      Value copy = value;
      if (value.micro_batch >= 0) copy.micro_batch = m;
      values[copy] = info;
    }
  }
  step.values = std::move(values);

  // Ops of a micro-batch come first; the others (reductions, updates) follow once.
  const auto work_end =
      std::stable_partition(step.ops.begin(), step.ops.end(), [](const Op& op) { return op.micro_batch >= 0; });
  std::vector<Op> ops;
  for (int m = 0; m < count_; ++m) {
    for (auto op = step.ops.begin(); op != work_end; ++op) {
      Op copy = *op;
      copy.micro_batch = m;
      for (auto* side : {&copy.reads, &copy.writes}) {
        for (Value& value : *side) {
          if (value.micro_batch >= 0) value.micro_batch = m;
        }
      }
      // From the second micro-batch on, a gradient is added to, so it is read as well.
      for (const Value& value : copy.writes) {
        if (m > 0 && value.kind == ValueKind::kGradient &&
            std::find(copy.reads.begin(), copy.reads.end(), value) == copy.reads.end()) {
          copy.reads.push_back(value);
        }
      }
      ops.push_back(std::move(copy));
    }
  }
  ops.insert(ops.end(), work_end, step.ops.end());
  step.ops = std::move(ops);
  return step;
}

Technique micro_batches_row() {
  return {.name = "micro-batches",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            return std::make_unique<MicroBatches>(step.layout.micro_batches);
          },
          .alternatives = {{.key = "train.micro_batch", .automatic = true, .values = smaller_micro_batches}}};
}

}  // namespace herd::strategies
