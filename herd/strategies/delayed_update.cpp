#include "herd/strategies/delayed_update.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/program_names.h"

namespace herd::strategies {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

namespace {

bool is_update(const Op& op) { return op.kind == OpKind::kStep && op.lane == Lane::kHost; }

// Moves each eviction of a gradient up to the op that completes it: the copy then runs beside backward, and no longer
// waits for the norm.
std::vector<Op> with_early_evictions(std::vector<Op> ops) {
  std::vector<Op> out;
  for (Op& op : ops) {
    const bool evicts = op.kind == OpKind::kEvict && op.reads.at(0).kind == ValueKind::kGradient;
    if (!evicts) {
      out.push_back(std::move(op));
      continue;
    }
    const auto completes = [&](const Op& other) { return std::ranges::count(other.writes, op.reads[0]) > 0; };
    const auto last = std::find_if(out.rbegin(), out.rend(), completes);
    out.insert(last.base(), std::move(op));
  }
  return out;
}

void refuse(const spec::RunFile& run) {
  const auto& strategy = run.strategy;
  const auto fail = [](const std::string& why, const std::string& fix) {
    throw Error(Code::kBadConfig,
                "strategy.delayed_update " + why + "\n  fix: " + fix + ", or strategy.delayed_update = false");
  };
  if (strategy.offload != "states" && strategy.offload != "nvme")
    fail("lets the host update beside the next step, and strategy.offload = \"" + strategy.offload +
             "\" leaves no update to the host that could wait",
         "strategy.offload = \"states\"");
  if (strategy.precision == "fp16")
    fail("does not go with strategy.precision = \"fp16\", whose loss scale belongs to the step of the gradient",
         "strategy.precision = \"bf16\"");
}

}  // namespace

Program DelayedUpdate::rewrite(Program step) const {
  std::vector<Op> ops, others;
  for (Op& op : step.ops) (is_update(op) ? ops : others).push_back(std::move(op));
  others = with_early_evictions(std::move(others));
  for (const Op& op : ops) {
    for (const Value& value : op.reads) {
      if (value.kind == ValueKind::kGradient || value.kind == ValueKind::kFactor) {
        step.values.at(value).persistent = true;
        step.values.at(value).pooled = false;
      }
    }
  }
  ops.insert(ops.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  step.ops = std::move(ops);
  return step;
}

Technique delayed_update_row() {
  return {.name = "delayed update",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (!step.run.strategy.delayed_update) return nullptr;
            refuse(step.run);
            return std::make_unique<DelayedUpdate>();
          },
          .extend_proof =
              [](const StepContext& step, program::Proof& proof) {
                if (step.run.strategy.delayed_update) proof.update_delay = 1;
              },
          .supports = {{"strategy.delayed_update", {}}}};
}

}  // namespace herd::strategies
