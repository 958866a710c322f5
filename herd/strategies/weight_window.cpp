#include "herd/strategies/weight_window.h"

#include <algorithm>
#include <map>
#include <utility>

#include "herd/base/error.h"
#include "herd/program/program_names.h"
#include "herd/strategies/each_pass.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Tier;
using program::Value;

namespace {

constexpr int64_t kDefaultWindow = 2;  // where the run file leaves the number open

bool is_device_weight(const Value& value) {
  return value.kind == program::ValueKind::kWeight && value.tier == Tier::kDevice;
}

bool fetches_weights(const Op& op) { return op.kind == OpKind::kFetch && is_device_weight(op.writes.at(0)); }

Value waiting(const Value& value) { return in_tier(value, Tier::kHost); }

// Throws kBadConfig for what does not go with weights that wait on the host.
void check_beside_window(const StepContext& step) {
  if (zero_stage(step.run, step.layout) == 3 && step.run.strategy.gather_codec != "none")
    throw Error(Code::kBadConfig, "strategy.offload = \"" + step.run.strategy.offload +
                                      "\" does not go with strategy.gather_codec = \"" +
                                      step.run.strategy.gather_codec +
                                      "\": encoded shards stay on the device, and the window's wait on the host\n  "
                                      "fix: strategy.gather_codec = \"none\", or strategy.offload = \"states\"");
}

}  // namespace

bool has_window(const spec::RunFile& run) {
  return run.strategy.offload == "window" || run.strategy.offload == "nvme_all";
}

program::Program WeightWindow::rewrite(program::Program step) const {
  std::map<Value, int64_t> kept;  // what the device has from step to step, and its bytes
  for (const auto& [value, info] : step.values) {
    if (is_device_weight(value) && info.persistent) kept[value] = info.bytes;
  }
  for (const auto& [value, bytes] : kept) {
    step.values[waiting(value)] = {.bytes = bytes, .persistent = true};
    if (!value.placement.is_whole() && kept.contains(placed(value, program::kWhole))) {
      step.values.erase(value);  // updates of a part of what is whole on the host stay there
    } else {
      program::ValueInfo& info = step.values.at(value);
      info.persistent = false;
      info.pooled = true;
    }
  }
  for (Op& op : step.ops) {
    if (op.kind != OpKind::kAllGather || !kept.contains(op.writes.at(0))) continue;
    for (auto* side : {&op.reads, &op.writes}) std::ranges::transform(*side, side->begin(), waiting);
  }
  return with_fetches(std::move(step), layers_);
}

program::Program with_fetches(program::Program step, const std::vector<int>& layers) {
  std::erase_if(step.ops, fetches_weights);
  std::vector<Op> ops;
  const auto fetch = [&](const Value& value) {
    const auto from = step.values.find(waiting(value));
    if (from == step.values.end() || !from->second.persistent) return;  // it is gathered
    ops.push_back(
        {.kind = OpKind::kFetch, .lane = program::Lane::kCopyIn, .reads = {waiting(value)}, .writes = {value}});
  };
  each_pass(step.ops, layers, fetch, [&](Op& op) {
    if (op.kind == OpKind::kAllGather && is_device_weight(op.reads.at(0))) std::ranges::for_each(op.reads, fetch);
    ops.push_back(std::move(op));
  });
  step.ops = std::move(ops);
  return step;
}

Technique weight_window_row() {
  return {
      .name = "window of weights",
      .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
        if (!has_window(step.run)) return nullptr;
        check_beside_window(step);
        return std::make_unique<WeightWindow>(step.layers);
      },
      .supports = {{"strategy.offload", {"window"}}, {"strategy.window", {}}},
      .alternatives = {{.key = "strategy.offload",
                        .values =
                            [](const spec::RunFile& run, const RankCounts&) {
                              return values_if(run.strategy.offload == "none", "window");
                            }}},
      .auto_numbers = {{.key = "strategy.window",
                        .applies = [](const spec::RunFile& run, const spec::Layout&) { return has_window(run); },
                        .value_if_inapplicable = kDefaultWindow,
                        .max_value =
                            [](const spec::ModelTable& model) { return static_cast<int64_t>(model.blocks.size()); }}},
      .set_pool_sizes =
          [](const spec::RunFile& run, program::SlotRules& rules) {
            if (!has_window(run)) return;
            const int64_t window = run.strategy.window == spec::kAuto ? kDefaultWindow : run.strategy.window;
            rules.gather_buffers = static_cast<int>(window);
          }};
}

}  // namespace herd::strategies
