#include "herd/strategies/values_in_files.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/program_names.h"
#include "herd/spec/model_states.h"
#include "herd/strategies/gradients_in_files.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

namespace {

bool is_kept_on_host(const Value& value, const program::ValueInfo& info) {
  return value.tier == Tier::kHost && info.persistent &&
         (value.kind == ValueKind::kWeight || value.kind == ValueKind::kState);
}

Op between(OpKind kind, const std::vector<Value>& on_host) {
  Op op{.kind = kind, .lane = Lane::kIo, .reads = {}, .writes = {}};
  for (const Value& value : on_host) {
    const Value file = in_tier(value, Tier::kNvme);
    op.reads.push_back(kind == OpKind::kFetch ? file : value);
    op.writes.push_back(kind == OpKind::kFetch ? value : file);
  }
  return op;
}

// Finds what the lane io has to do, by the ops that use values whose files keep them.
class FileOps {
 public:
  FileOps(const std::vector<Op>& ops, const std::set<Value>& moved) : moved_(moved) {
    for (size_t i = 0; i < ops.size(); ++i) use(i, ops[i]);
    for (const auto& [op, values] : made_) {
      size_t last = op;
      for (const Value& value : values) last = std::max(last, last_use_.at({value, run_of_.at({value, op})}));
      after_[last].push_back(between(OpKind::kEvict, values));
    }
  }

  // Returns the ops in front of an op, or behind the last one.
  std::vector<Op> before(size_t position) const {
    std::vector<Op> out;
    if (const auto at = after_.find(position - 1); position > 0 && at != after_.end()) out = at->second;
    if (const auto at = before_.find(position); at != before_.end())
      out.insert(out.end(), at->second.begin(), at->second.end());
    return out;
  }

 private:
  std::vector<Value> moved_among(const std::vector<Value>& values) const {
    std::vector<Value> out;
    std::ranges::copy_if(values, std::back_inserter(out), [&](const Value& value) { return moved_.contains(value); });
    return out;
  }

  // Notes a use. A value is on the host from its fetch, or from the op that makes it, until another value of its kind
  // is used; so what an op needs again is fetched no earlier than after that value's last use.
  void use(size_t i, const Op& op) {
    std::vector<Value> missing;
    size_t position = previous_fetch_for_ ? *previous_fetch_for_ : i;
    for (const Value& value : moved_among(op.reads)) {
      if (!is_here(value)) {
        missing.push_back(value);
        if (const auto used = last_use_.find({value, runs_[value]}); used != last_use_.end())
          position = std::max(position, used->second + 1);
      }
      touch(value, i);
    }
    const std::vector<Value> made = moved_among(op.writes);
    for (const Value& value : made) touch(value, i);
    if (!made.empty()) made_.emplace_back(i, made);
    if (missing.empty()) return;
    before_[position].push_back(between(OpKind::kFetch, missing));
    previous_fetch_for_ = i;
  }

  bool is_here(const Value& value) const {
    if (value.kind == ValueKind::kGradient) return false;  // its buffer is for the next one, until its update
    const auto here = here_.find(value.kind);
    return here != here_.end() && here->second == value;
  }

  void touch(const Value& value, size_t i) {
    if (!is_here(value)) ++runs_[value];
    here_.insert_or_assign(value.kind, value);
    run_of_[{value, i}] = runs_[value];
    last_use_[{value, runs_[value]}] = i;
  }

  const std::set<Value>& moved_;
  std::map<ValueKind, Value> here_;                   // the value of each kind that was used last
  std::map<Value, int> runs_;                         // how often a value has come to the host
  std::map<std::pair<Value, size_t>, int> run_of_;    // which of these times an op uses it
  std::map<std::pair<Value, int>, size_t> last_use_;  // by value and time: the last op that uses it
  std::vector<std::pair<size_t, std::vector<Value>>> made_;
  std::optional<size_t> previous_fetch_for_;  // the op for which the newest fetch is
  std::map<size_t, std::vector<Op>> before_, after_;
};

// Returns the groups of layers from `first` on. A group that several layers read counts to the first of them.
std::set<int> groups_from_layer(const StepContext& step, int first) {
  std::map<int, int> layer_of;
  for (size_t b = 0; b < step.model.blocks.size(); ++b) {
    for (const int group : step.model.blocks[b].groups) layer_of.try_emplace(group, step.layers[b]);
  }
  std::set<int> out;
  for (const auto& [group, layer] : layer_of) {
    if (layer >= first) out.insert(group);
  }
  return out;
}

// Tells whether the host has a rank's weights as one value, whole or a shard.
bool may_have_files(const spec::RunFile& run, const spec::Layout& layout) {
  const int stage = zero_stage(run, layout);
  return run.strategy.offload == "window" && run.strategy.shard == "slices" && stage != 1 && stage != 2;
}

void check_files(const StepContext& step) {
  if (may_have_files(step.run, step.layout)) return;
  throw Error(Code::kBadConfig,
              "strategy.file_layers = " + std::to_string(step.run.strategy.file_layers) +
                  " keeps what a rank has of its weights on the host in files, where strategy.zero = " +
                  std::to_string(step.run.strategy.zero) + " with strategy.shard = \"" + step.run.strategy.shard +
                  "\" gathers whole weights\n  fix: strategy.zero = 3 with strategy.shard = \"slices\", or "
                  "strategy.file_layers = 0");
}

int64_t num_layers(const spec::ModelTable& model) { return model.blocks.back().layer + 1; }

}  // namespace

Program ValuesInFiles::rewrite(Program step) const {
  std::set<Value> moved;
  for (const auto& [value, info] : step.values) {
    const bool has_parts = std::ranges::any_of(step.values, [&](const auto& other) {
      return other.first.placement != value.placement && is_kept_on_host(other.first, other.second) &&
             other.first.kind == value.kind && other.first.index == value.index;
    });
    const bool waits = gradients_ && value.kind == ValueKind::kGradient && value.tier == Tier::kHost;
    if ((is_kept_on_host(value, info) || waits) && groups_.contains(value.index) && !has_parts) moved.insert(value);
  }
  for (const Value& value : moved) {
    program::ValueInfo& staged = step.values.at(value);
    const bool is_in_blocks = value.tensor > 0 && value.kind != ValueKind::kGradient;  // pieces of weights and states
    staged = {.bytes = is_in_blocks ? staged.bytes : spec::nvme_bytes(staged.bytes), .pooled = true};
    step.values[in_tier(value, Tier::kNvme)] = {.bytes = staged.bytes, .persistent = true};
  }
  const FileOps files(step.ops, moved);
  std::vector<Op> ops;
  for (size_t i = 0; i <= step.ops.size(); ++i) {
    for (Op& op : files.before(i)) ops.push_back(std::move(op));
    if (i < step.ops.size()) ops.push_back(step.ops[i]);
  }
  step.ops = std::move(ops);
  return step;
}

Technique values_in_files_row() {
  return {.name = "values in files",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.run.strategy.offload.starts_with("nvme"))
              return std::make_unique<ValuesInFiles>(groups_from_layer(step, 0), has_gradients_in_files(step.run));
            if (step.run.strategy.file_layers <= 0) return nullptr;
            check_files(step);
            const auto first = static_cast<int>(num_layers(step.model) - step.run.strategy.file_layers);
            return std::make_unique<ValuesInFiles>(groups_from_layer(step, first));
          },
          .supports = {{"strategy.offload", {"nvme"}}, {"strategy.file_layers", {}}},
          .in_equations = true,
          .alternatives = {{.key = "strategy.offload",
                            .values =
                                [](const spec::RunFile& run, const RankCounts&) {
                                  return values_if(run.strategy.offload == "none" && run.memory.host_budget > 0,
                                                   "nvme");
                                }}},
          .auto_numbers = {{.key = "strategy.file_layers",
                            .applies =
                                [](const spec::RunFile& run, const spec::Layout& layout) {
                                  return run.memory.host_budget > 0 && may_have_files(run, layout);
                                },
                            .value_if_inapplicable = 0,
                            .max_value = num_layers,
                            .saves_host_memory = true}}};
}

}  // namespace herd::strategies
