#include "herd/strategies/host_states.h"

#include <utility>
#include <vector>

#include "herd/program/program_names.h"

namespace herd::strategies {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Value;
using program::ValueKind;

namespace {

Value on_host(const Value& value) { return in_tier(value, program::Tier::kHost); }

Op copy(OpKind kind, Lane lane, const Value& from, const Value& to) {
  return {.kind = kind, .lane = lane, .reads = {from}, .writes = {to}};
}

}  // namespace

std::string HostStates::name() const { return "states on the host"; }

program::Program HostStates::rewrite(program::Program step) const {
  std::vector<Op> ops;
  for (Op& op : step.ops) {
    if (op.kind != OpKind::kStep) {
      ops.push_back(std::move(op));
      continue;
    }
    Value gradient, weight, state;
    std::vector<Value> reads;
    for (const Value& value : op.reads) {
      if (value.kind == ValueKind::kGradient) gradient = value;
      if (value.kind == ValueKind::kWeight) weight = value;
      if (value.kind == ValueKind::kState) state = value;
      if (value.kind != ValueKind::kWeight || keeps_weights_) reads.push_back(on_host(value));
    }
    for (const Value& value : {gradient, weight}) {
      program::ValueInfo info = step.values.at(value);
      info.persistent = value == weight && keeps_weights_;
      info.pooled = !info.persistent;
      step.values[on_host(value)] = info;
    }
    auto states = step.values.extract(state);
    states.key() = on_host(state);
    step.values.insert(std::move(states));
    ops.push_back(copy(OpKind::kEvict, Lane::kCopyOut, gradient, on_host(gradient)));
    op.lane = Lane::kHost;
    op.reads = std::move(reads);
    for (Value& value : op.writes) value = on_host(value);
    ops.push_back(std::move(op));
    ops.push_back(copy(OpKind::kFetch, Lane::kCopyIn, on_host(weight), weight));
  }
  step.ops = std::move(ops);
  return step;
}

Technique host_states_row() {
  return {.name = "states on the host",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.run.strategy.offload != "states") return nullptr;
            return std::make_unique<HostStates>(step.model.compute_dtype == DType::kF32);
          },
          .supports = {{"strategy.offload", {"states"}}},
          .in_equations = true,
          .alternatives = {{.key = "strategy.offload", .values = [](const spec::RunFile& run, const RankCounts&) {
                              return values_if(run.strategy.offload == "none", "states");
                            }}}};
}

}  // namespace herd::strategies
