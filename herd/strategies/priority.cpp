#include "herd/strategies/priority.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/program/collective_message.h"
#include "herd/program/passes.h"
#include "herd/strategies/gradient_clipping.h"
#include "herd/strategies/server_sync.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

namespace {

// What is tried where it is "auto".
constexpr int64_t kSmallestPartition = 1 << 20, kLargestPartition = 1 << 29, kLargestCredit = 64;

// A partition is an op, which takes about 0.5 ms to plan and prove, and 20 KB.
constexpr int64_t kMaxPartitions = 1 << 16;

int64_t num_partitions(int64_t bytes, int64_t partition_bytes) {
  if (partition_bytes <= 0 || bytes == 0) return 1;
  return (bytes - 1) / partition_bytes + 1;
}

bool sums_gradients(const Op& op) {
  return op.kind == OpKind::kAllReduce && !op.writes.empty() && op.writes[0].kind == ValueKind::kGradient;
}

// Holds what turns the gradient of one group into new weights.
struct Group {
  size_t need = 0;      // the first other op that reads its weights
  size_t last_use = 0;  // the last other op that uses its weights or its gradient
  std::vector<Op> ops;  // the reduction, or push and pull, and then the update
  int parts_handed_over = 0;
};

// Writes a step in which the ops of groups come by their priority.
class PriorityWriter {
 public:
  PriorityWriter(Program step, const PriorityRules& rules) : step_(std::move(step)), rules_(rules) {
    for (Op& op : step_.ops) take(std::move(op));
    check_number_of_partitions();
    for (size_t i = others_.size(); i-- > 0;) {
      for (const auto* side : {&others_[i].reads, &others_[i].writes}) {
        for (const Value& value : *side) note_use(value, i);
      }
    }
  }

  Program write() {
    step_.ops.clear();
    size_t last_backward = 0;
    for (const auto& [number, group] : groups_) last_backward = std::max(last_backward, group.last_use);
    for (size_t i = 0; i < others_.size(); ++i) {
      const bool is_pass = program::is_pass(others_[i]);
      step_.ops.push_back(std::move(others_[i]));
      for (auto& [number, group] : groups_) {
        if (group.last_use == i) pending_.emplace(std::pair(group.need, number), &group);
      }
      if (is_pass) hand_over(rules_.credit);
      if (i == last_backward) hand_over(std::numeric_limits<int64_t>::max());
    }
    return std::move(step_);
  }

 private:
  void take(Op op) {
    const bool is_update = op.kind == OpKind::kStep && !rules_.updates_wait;
    if (sums_gradients(op)) {
      for (const Value& value : op.writes) {
        Op one = op;
        one.reads = one.writes = {value};
        groups_[value.index].ops.push_back(std::move(one));
      }
    } else if (is_served(op) || is_update) {
      if (is_update) op.lane = program::Lane::kUpdate;
      groups_[op.reads.at(0).index].ops.push_back(std::move(op));
    } else {
      others_.push_back(std::move(op));
    }
  }

  // Is called from the last op to the first. What waits for all gradients is no use of one.
  void note_use(const Value& value, size_t index) {
    const bool used = value.kind == ValueKind::kWeight || value.kind == ValueKind::kGradient;
    const auto group = used ? groups_.find(value.index) : groups_.end();
    if (group == groups_.end() || others_[index].micro_batch < 0) return;
    if (value.kind == ValueKind::kWeight) group->second.need = index;
    group->second.last_use = std::max(group->second.last_use, index);
  }

  // Hands over at most so many partitions, the most urgent first. A part of a push brings the pull of the same part.
  void hand_over(int64_t count) {
    for (; count > 0 && !pending_.empty(); --count) {
      Group& group = *pending_.begin()->second;
      const Op& first = group.ops[0];
      const int part = group.parts_handed_over++, parts = num_parts(first);
      for (const Op& op : group.ops) {
        const bool is_cut = &op == &first || is_served(op);
        if (!is_cut && part + 1 < parts) continue;  // after the last part
        step_.ops.push_back(op);
        if (is_cut) step_.ops.back().part = part, step_.ops.back().parts = parts;
      }
      if (part + 1 == parts) pending_.erase(pending_.begin());
    }
  }

  int num_parts(const Op& op) const {
    return static_cast<int>(num_partitions(bytes_to_cut(op), rules_.partition_bytes));
  }

  // Returns 0 for an op that is not cut.
  int64_t bytes_to_cut(const Op& op) const {
    return sums_gradients(op) || is_served(op) ? step_.values.at(op.reads[0]).bytes : 0;
  }

  void check_number_of_partitions() const {
    const auto num_cuts = [&](int64_t partition_bytes) {
      int64_t sum = 0;
      for (const auto& [number, group] : groups_)
        sum += num_partitions(bytes_to_cut(group.ops[0]), partition_bytes) - 1;
      return sum;
    };
    const int64_t cuts = num_cuts(rules_.partition_bytes);
    if (cuts < kMaxPartitions) return;
    int64_t larger = rules_.partition_bytes;
    while (num_cuts(larger) >= kMaxPartitions) larger *= 2;
    throw Error(
        Code::kBadConfig,
        "strategy.partition_bytes = " + std::to_string(rules_.partition_bytes) + " cuts the gradients of rank " +
            std::to_string(step_.rank) + " into " + std::to_string(cuts + static_cast<int64_t>(groups_.size())) +
            " partitions, of which more than " + std::to_string(kMaxPartitions) +
            " are too many to plan\n  fix: strategy.partition_bytes = " + std::to_string(larger) + ", or \"auto\"");
  }

  Program step_;
  const PriorityRules& rules_;
  std::vector<Op> others_;
  std::map<int, Group> groups_;
  std::map<std::pair<size_t, int>, Group*> pending_;  // groups that are complete, the most urgent first
};

// Throws kBadConfig for what does not go with priority.
void check_run(const StepContext& step) {
  const spec::RunFile& run = step.run;
  const auto refuse = [](const std::string& setting, const std::string& rule, const std::string& fix) {
    throw Error(Code::kBadConfig, "strategy.schedule = \"priority\" does not go with " + setting + ": " + rule +
                                      "\n  fix: " + fix + ", or strategy.schedule = \"fifo\"");
  };
  if (const int zero = zero_stage(run, step.layout); zero > 0)
    refuse("strategy.zero = " + std::to_string(zero), "it orders all-reduces, and ZeRO has none",
           step.layout.fsdp > 1 ? "strategy.zero = 0 with mesh.fsdp = 1" : "strategy.zero = 0");
  if (run.device.kind != "cpu" && run.device.kind != "auto")
    refuse("device.kind = \"" + run.device.kind + "\"", "updates beside the next forward are those of the CPU",
           "device.kind = \"cpu\"");
  if (run.strategy.compression != "none")
    refuse("strategy.compression = \"" + run.strategy.compression + "\"",
           "all sums are decoded together, so no update comes before the last", "strategy.compression = \"none\"");
}

PriorityRules rules_of(const StepContext& step) {
  PriorityRules rules;
  const auto& stated = step.run.strategy;
  if (stated.partition_bytes != spec::kAuto) rules.partition_bytes = stated.partition_bytes;
  if (stated.credit != spec::kAuto) rules.credit = stated.credit;
  rules.updates_wait = needs_norm(step.run, step.layout);
  return rules;
}

// Doubles from the smallest partition, of which there are not too many, until one holds the largest group.
std::vector<int64_t> partitions_to_try(const spec::ModelTable& model) {
  int64_t largest = 0, all = 0;
  for (int group = 0; group < static_cast<int>(model.groups.size()); ++group) {
    const int64_t bytes = model.group_elements(group) * size_of(model.gradient_dtype);
    largest = std::max(largest, bytes), all += bytes;
  }
  std::vector<int64_t> out = {kSmallestPartition};
  while (all / out[0] >= kMaxPartitions) out[0] *= 2;
  while (out.back() < std::min(largest, kLargestPartition)) out.push_back(2 * out.back());
  return out;
}

std::vector<int64_t> credits_to_try(const spec::ModelTable&) {
  std::vector<int64_t> out = {0, 1, 2, 3};
  while (out.back() < kLargestCredit) out.push_back(out[out.size() - 2] * 2);
  return out;
}

}  // namespace

std::string Priority::name() const {
  return "priority, partitions of " + format_bytes(static_cast<double>(rules_.partition_bytes)) + ", credit " +
         std::to_string(rules_.credit);
}

Program Priority::rewrite(Program step) const { return PriorityWriter(std::move(step), rules_).write(); }

bool has_priority(const spec::RunFile& run, const spec::Layout& layout) {
  return run.strategy.schedule == "priority" && (layout.gradient_ranks() > 1 || uses_servers(run, layout));
}

Technique priority_row() {
  return {.name = "priority",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (!has_priority(step.run, step.layout)) return nullptr;
            check_run(step);
            return std::make_unique<Priority>(rules_of(step));
          },
          .supports = {{"strategy.schedule", {"priority"}}, {"strategy.partition_bytes", {}}, {"strategy.credit", {}}},
          .auto_numbers = {{.key = "strategy.partition_bytes",
                            .applies = has_priority,
                            .value_if_inapplicable = PriorityRules{}.partition_bytes,
                            .values = partitions_to_try},
                           {.key = "strategy.credit",
                            .applies = has_priority,
                            .value_if_inapplicable = PriorityRules{}.credit,
                            .values = credits_to_try}}};
}

}  // namespace herd::strategies
