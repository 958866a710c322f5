#include "herd/strategies/zero3.h"

#include <algorithm>
#include <vector>

#include "herd/program/program_names.h"
#include "herd/spec/model_states.h"
#include "herd/strategies/each_pass.h"
#include "herd/strategies/weight_window.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

namespace {

constexpr int64_t kMostAhead = 8;     // a search tries gathers that run up to so many passes ahead
constexpr int64_t kDefaultAhead = 1;  // where the run file leaves the number open

// Beside a window of weights, strategy.window is the size of the pool (weight_window.h), and wholes would lie on the
// host.
bool spends_device_memory(const spec::RunFile& run, const spec::Layout& layout) {
  return zero_stage(run, layout) == 3 && !has_window(run);
}

// Groups that are kept whole are gathered exact (gather_codec.h). So with a codec "auto" keeps none: how fast the
// machine is would change the losses.
bool may_keep_whole(const spec::RunFile& run, const spec::Layout& layout) {
  return spends_device_memory(run, layout) && run.strategy.gather_codec == "none";
}

}  // namespace

std::set<int> kept_whole(const std::map<int, int>& gathers, int64_t count) {
  std::vector<std::pair<int, int>> order;  // minus the number of gathers, and the group
  for (const auto& [group, times] : gathers) order.emplace_back(-times, group);
  std::sort(order.begin(), order.end());
  std::set<int> kept;
  for (const auto& [times, group] : order) {
    if (static_cast<int64_t>(kept.size()) < count) kept.insert(group);
  }
  return kept;
}

std::string Zero3::name() const {
  return "zero3" + (num_kept_whole_ > 0 ? ", " + std::to_string(num_kept_whole_) + " groups whole" : std::string());
}

program::Program Zero3::rewrite(program::Program step) const {
  std::map<int, int> gathers;  // in a step, by group
  each_pass(
      step.ops, layers_, [&](const Value& value) { ++gathers[value.index]; }, [](const Op&) {});
  std::erase_if(gathers, [&](const auto& entry) { return axes_.of(entry.first) == kNoAxis; });
  const std::set<int> kept = kept_whole(gathers, num_kept_whole_);
  const auto is_gathered = [&](int group) { return axes_.of(group) != kNoAxis && !kept.contains(group); };
  const auto shard_of = [&](int group) { return program::weight(group, program::kWhole.shard_on(axes_.of(group))); };
  std::map<Value, program::ValueInfo> shards;  // of frozen weights, which ZeRO-1 has left whole
  for (auto& [value, info] : step.values) {
    if (!is_whole_weight(value) || !is_gathered(value.index)) continue;
    const Value shard = shard_of(value.index);
    const int ranks = step.mesh.size(axes_.of(value.index));
    if (!step.values.contains(shard)) {
      shards[shard] = info;
      shards[shard].bytes = spec::shard_bytes(info.bytes, ranks);
      info.bytes = shards[shard].bytes * ranks;
    }
    info.persistent = false, info.pooled = true;
  }
  step.values.merge(shards);
  std::erase_if(step.ops, [&](const Op& op) {
    if (op.kind != OpKind::kAllGather) return false;
    const Value& value = op.writes[0];
    return value.kind == ValueKind::kWeight && op.axis == axes_.of(value.index) && is_gathered(value.index);
  });
  std::vector<Op> ops;
  const auto gather = [&](const Value& value) {
    if (!is_gathered(value.index)) return;
    ops.push_back({.kind = OpKind::kAllGather,
                   .lane = program::Lane::kGather,
                   .reads = {shard_of(value.index)},
                   .writes = {value},
                   .axis = axes_.of(value.index)});
  };
  each_pass(step.ops, layers_, gather, [&](Op& op) { ops.push_back(std::move(op)); });
  step.ops = std::move(ops);
  return step;
}

int64_t groups_kept_whole(const spec::RunFile& run) {
  return run.strategy.keep_whole == spec::kAuto ? 0 : run.strategy.keep_whole;
}

Technique zero3_row() {
  return {.name = "zero3",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (zero_stage(step.run, step.layout) < 3) return nullptr;
            return std::make_unique<Zero3>(shard_axes(step), groups_kept_whole(step.run), step.layers);
          },
          .supports = {{"strategy.zero", {3}}, {"strategy.prefetch", {}}, {"strategy.keep_whole", {}}},
          .in_equations = true,
          .alternatives = {zero_alternative<3>()},
          .auto_numbers = {{.key = "strategy.prefetch",
                            .applies = spends_device_memory,
                            .value_if_inapplicable = kDefaultAhead,
                            .max_value = [](const spec::ModelTable&) { return kMostAhead; }},
                           {.key = "strategy.keep_whole",
                            .applies = may_keep_whole,
                            .max_value =
                                [](const spec::ModelTable& model) { return static_cast<int64_t>(model.groups.size()); },
                            .no_memory_without_budget = true}},
          .set_pool_sizes =
              [](const spec::RunFile& run, program::SlotRules& rules) {
                const int64_t ahead = run.strategy.prefetch == spec::kAuto ? kDefaultAhead : run.strategy.prefetch;
                rules.gather_buffers = static_cast<int>(ahead) + 1;  // one for the pass that runs
              }};
}

}  // namespace herd::strategies
