#include "herd/strategies/weight_window.h"

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

bool has_window(const spec::RunFile& run) { return run.strategy.offload == "window"; }

bool fetches_weights(const Op& op) { return op.kind == OpKind::kFetch && is_whole_weight(op.writes.at(0)); }

}  // namespace

program::Program WeightWindow::rewrite(program::Program step) const {
  std::vector<std::pair<Value, int64_t>> weights;
  for (auto& [value, info] : step.values) {
    if (!is_whole_weight(value) || !info.persistent) continue;
    weights.emplace_back(value, info.bytes);
    info.persistent = false;
    info.pooled = true;
  }
  for (const auto& [value, bytes] : weights)
    step.values[in_tier(value, Tier::kHost)] = {.bytes = bytes, .persistent = true};
  return with_fetches(std::move(step), layers_);
}

program::Program with_fetches(program::Program step, const std::vector<int>& layers) {
  std::erase_if(step.ops, fetches_weights);
  std::vector<Op> ops;
  const auto fetch = [&](const Value& value) {
    ops.push_back({.kind = OpKind::kFetch,
                   .lane = program::Lane::kCopyIn,
                   .reads = {in_tier(value, Tier::kHost)},
                   .writes = {value}});
  };
  each_pass(step.ops, layers, fetch, [&](Op& op) { ops.push_back(std::move(op)); });
  step.ops = std::move(ops);
  return step;
}

Technique weight_window_row() {
  return {
      .name = "window of weights",
      .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
        if (!has_window(step.run)) return nullptr;
        if (const int stage = zero_stage(step.run, step.layout); stage > 0)
          throw Error(Code::kBadConfig,
                      "strategy.offload = \"window\" keeps whole weights on the host, which strategy.zero = " +
                          std::to_string(stage) +
                          " cuts into shards\n  fix: strategy.zero = 0, or "
                          "strategy.offload = \"states\"");
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
