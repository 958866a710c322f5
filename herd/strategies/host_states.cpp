#include "herd/strategies/host_states.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "herd/program/program_names.h"

namespace herd::strategies {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Tier;
using program::Value;
using program::ValueKind;

namespace {

Value on_host(const Value& value) { return in_tier(value, Tier::kHost); }

Op copy(OpKind kind, Lane lane, const Value& from, const Value& to) {
  return {.kind = kind, .lane = lane, .reads = {from}, .writes = {to}};
}

// Holds the update of one group, and how many of the other ops run before it.
struct Update {
  Op op;
  size_t position = 0;
  Value gradient = {}, weight = {}, state = {};
};

bool touches(const Op& op, int group) {
  const auto is_of_group = [&](const Value& value) {
    return value.index == group && (value.kind == ValueKind::kGradient || value.kind == ValueKind::kWeight);
  };
  return std::any_of(op.reads.begin(), op.reads.end(), is_of_group) ||
         std::any_of(op.writes.begin(), op.writes.end(), is_of_group);
}

// Returns the position of an update that waits for no other group: after the last op that uses the group.
size_t position_after_last_use(const std::vector<Op>& ops, int group) {
  size_t position = ops.size();
  while (position > 0 && !touches(ops[position - 1], group)) --position;
  return position;
}

// Takes the updates from the ops, in the order in which they shall run.
std::vector<Update> take_updates(std::vector<Op>& ops) {
  std::vector<Update> updates;
  std::vector<Op> others;
  for (Op& op : ops) {
    if (op.kind != OpKind::kStep) {
      others.push_back(std::move(op));
      continue;
    }
    Update update{.op = std::move(op)};
    bool waits_for_all = false;
    for (const Value& value : update.op.reads) {
      if (value.kind == ValueKind::kGradient) update.gradient = value;
      if (value.kind == ValueKind::kWeight) update.weight = value;
      if (value.kind == ValueKind::kState) update.state = value;
      waits_for_all = waits_for_all || value.kind == ValueKind::kFactor;
    }
    update.position = waits_for_all ? others.size() : position_after_last_use(others, update.gradient.index);
    updates.push_back(std::move(update));
  }
  ops = std::move(others);
  std::stable_sort(updates.begin(), updates.end(),
                   [](const Update& a, const Update& b) { return a.position < b.position; });
  return updates;
}

// Writes the ops of updates on the host.
class HostUpdateWriter {
 public:
  HostUpdateWriter(program::Program& step, bool keeps_weights)
      : step_(step), keeps_weights_(keeps_weights), updates_(take_updates(step.ops)) {}

  void write() {
    for (const Update& update : updates_) declare(update);
    std::vector<Op> others = std::move(step_.ops);
    step_.ops.clear();
    size_t next = 0;
    for (size_t position = 0; position <= others.size(); ++position) {
      for (; next < updates_.size() && updates_[next].position == position; ++next) write_update(updates_[next]);
      if (position < others.size()) step_.ops.push_back(std::move(others[position]));
    }
  }

 private:
  void declare(const Update& update) {
    for (const Value& value : {update.gradient, update.weight}) {
      program::ValueInfo info = step_.values.at(value);
      info.persistent = value == update.weight && keeps_weights_;
      info.pooled = !info.persistent;
      step_.values[on_host(value)] = info;
    }
    auto states = step_.values.extract(update.state);
    states.key() = on_host(update.state);
    step_.values.insert(std::move(states));
  }

  void write_update(const Update& update) {
    step_.ops.push_back(copy(OpKind::kEvict, Lane::kCopyOut, update.gradient, on_host(update.gradient)));
    Op op = update.op;
    op.lane = Lane::kHost;
    std::erase_if(op.reads, [&](const Value& value) { return value.kind == ValueKind::kWeight && !keeps_weights_; });
    for (auto* side : {&op.reads, &op.writes}) {
      for (Value& value : *side) value = on_host(value);
    }
    step_.ops.push_back(std::move(op));
    step_.ops.push_back(copy(OpKind::kFetch, Lane::kCopyIn, on_host(update.weight), update.weight));
  }

  program::Program& step_;
  const bool keeps_weights_;
  const std::vector<Update> updates_;
};

}  // namespace

program::Program HostStates::rewrite(program::Program step) const {
  HostUpdateWriter(step, keeps_weights_).write();
  return step;
}

Technique host_states_row() {
  return {.name = "states on the host",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.run.strategy.offload == "none") return nullptr;
            return std::make_unique<HostStates>(step.model.compute_dtype == DType::kF32);
          },
          .supports = {{"strategy.offload", {"states"}}},
          .in_equations = true,
          .alternatives = {{.key = "strategy.offload", .values = [](const spec::RunFile& run, const RankCounts&) {
                              return values_if(run.strategy.offload == "none", "states");
                            }}}};
}

}  // namespace herd::strategies
