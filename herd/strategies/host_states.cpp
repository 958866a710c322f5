#include "herd/strategies/host_states.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "herd/program/program_names.h"
#include "herd/strategies/weight_window.h"

namespace herd::strategies {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Tier;
using program::Value;
using program::ValueKind;

namespace {

constexpr int64_t kBlockElements = 4096;  // of a piece: whole blocks of a file in each of its dtypes

// Returns a piece of the value on the host, counted from 1; 0 for all of it.
Value on_host(Value value, int piece = 0) {
  value.tensor = piece;
  return in_tier(value, Tier::kHost);
}

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t in_blocks(int64_t elements) { return divided_up(elements, kBlockElements) * kBlockElements; }

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
  HostUpdateWriter(program::Program& step, bool keeps_weights, int64_t piece_elements)
      : step_(step),
        keeps_weights_(keeps_weights),
        piece_elements_(piece_elements),
        weight_bytes_(keeps_weights ? size_of(DType::kF32) : size_of(DType::kBF16)),
        updates_(take_updates(step.ops)) {}

  void write() {
    std::vector<int> num_pieces;
    for (const Update& update : updates_) {
      num_pieces.push_back(pieces(update));
      declare(update);
    }
    std::vector<Op> others = std::move(step_.ops);
    step_.ops.clear();
    size_t next = 0;
    for (size_t position = 0; position <= others.size(); ++position) {
      for (; next < updates_.size() && updates_[next].position == position; ++next) {
        const int pieces = num_pieces[next];
        for (int piece = pieces > 1 ? 1 : 0; piece <= (pieces > 1 ? pieces : 0); ++piece)
          write_update(updates_[next], piece);
      }
      if (position < others.size()) step_.ops.push_back(std::move(others[position]));
    }
  }

 private:
  int64_t elements(const Update& update) const { return step_.values.at(update.weight).bytes / weight_bytes_; }
  // Returns the number of pieces in which a group is updated; 1 where it is updated as one.
  int pieces(const Update& update) const {
    if (piece_elements_ == 0 || step_.values.at(update.state).bytes == 0) return 1;
    return std::max(1, static_cast<int>(divided_up(elements(update), piece_elements_)));
  }

  // Declares the pieces of a group, which are alike but for the last. What files keep of one is whole blocks.
  void declare_pieces(const Update& update) {
    const int64_t all = elements(update);
    const auto bytes_of_element = [&](const Value& value) { return divided_up(step_.values.at(value).bytes, all); };
    const int64_t gradient_bytes = bytes_of_element(update.gradient), state_bytes = bytes_of_element(update.state);
    const int last = pieces(update);
    const int64_t each = in_blocks(divided_up(all, last));
    for (int piece = last; piece > 0; --piece) {
      const int64_t own = piece < last ? each : all - (last - 1) * each;
      const int64_t blocks = in_blocks(own);
      step_.values[on_host(update.gradient, piece)] = {.bytes = gradient_bytes * own, .pooled = true};
      step_.values[on_host(update.weight, piece)] = {.bytes = weight_bytes_ * (keeps_weights_ ? blocks : own),
                                                     .persistent = keeps_weights_,
                                                     .pooled = !keeps_weights_};
      step_.values[on_host(update.state, piece)] = {.bytes = state_bytes * blocks, .persistent = true};
    }
    step_.values.erase(update.state);
  }

  void declare(const Update& update) {
    if (pieces(update) > 1) return declare_pieces(update);
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

  void write_update(const Update& update, int piece) {
    const Value gradient = on_host(update.gradient, piece), weight = on_host(update.weight, piece);
    step_.ops.push_back(copy(OpKind::kEvict, Lane::kCopyOut, update.gradient, gradient));
    Op op = update.op;
    op.lane = Lane::kHost;
    std::erase_if(op.reads, [&](const Value& value) { return value.kind == ValueKind::kWeight && !keeps_weights_; });
    for (auto* side : {&op.reads, &op.writes}) {
      for (Value& value : *side) value = on_host(value, value.kind == ValueKind::kFactor ? 0 : piece);
    }
    step_.ops.push_back(std::move(op));
    step_.ops.push_back(copy(OpKind::kFetch, Lane::kCopyIn, weight, update.weight));
    if (piece > 0) step_.ops.back().reads.push_back(update.weight);  // whose other pieces stay as they are
  }

  program::Program& step_;
  const bool keeps_weights_;
  const int64_t piece_elements_, weight_bytes_;
  const std::vector<Update> updates_;
};

}  // namespace

program::Program HostStates::rewrite(program::Program step) const {
  HostUpdateWriter(step, keeps_weights_, piece_elements_).write();
  return step;
}

namespace {

// Returns the elements of a piece of an update; 0 where the host keeps the states, or passes fetch whole weights from
// it.
int64_t piece_elements(const StepContext& step) {
  if (!step.run.strategy.offload.starts_with("nvme") || has_window(step.run)) return 0;
  const int64_t gradients = std::max<int64_t>(1, step.run.strategy.bucket / size_of(step.model.gradient_dtype));
  return in_blocks(gradients);
}

}  // namespace

Technique host_states_row() {
  return {.name = "states on the host",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.run.strategy.offload == "none") return nullptr;
            return std::make_unique<HostStates>(step.model.compute_dtype == DType::kF32, piece_elements(step));
          },
          .supports = {{"strategy.offload", {"states"}}},
          .in_equations = true,
          .alternatives = {{.key = "strategy.offload", .values = [](const spec::RunFile& run, const RankCounts&) {
                              return values_if(run.strategy.offload == "none", "states");
                            }}}};
}

}  // namespace herd::strategies
