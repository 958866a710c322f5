#include "herd/strategies/layer_owners.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "herd/base/error.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/spec/model_states.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Placement;
using program::Program;
using program::Value;
using program::ValueKind;

std::string LayerOwners::name() const { return "layers owned by ranks"; }

bool LayerOwners::is_own(const Program& step, int group) const {
  return owners_[static_cast<size_t>(group)] == step.mesh.index(axis_, step.rank);
}

// Turns shards into what this rank owns, and leaves out those of other owners. Wholes need no padding to equal shards.
void LayerOwners::replace_shards(Program& step) const {
  const Placement shard = program::kWhole.shard_on(axis_), owned = program::kWhole.owned_on(axis_);
  std::map<Value, program::ValueInfo> own;
  std::vector<Value> shards;
  for (const auto& [value, info] : step.values) {
    if (value.placement != shard || is_activation_or_gradient(value)) continue;
    shards.push_back(value);
    const int64_t whole = weight_bytes_[static_cast<size_t>(value.index)],
                  part = spec::shard_bytes(whole, step.mesh.size(axis_)), common = std::gcd(whole, part);
    program::ValueInfo of_owner = info;
    of_owner.bytes = part == 0 ? 0 : info.bytes / (part / common) * (whole / common);
    const auto of_all = step.values.find(placed(value, program::kWhole));
    if (of_all != step.values.end()) of_all->second.bytes = of_owner.bytes;
    if (is_own(step, value.index)) own[placed(value, owned)] = of_owner;
  }
  for (const Value& value : shards) step.values.erase(value);
  step.values.merge(own);
}

Program LayerOwners::rewrite(Program step) const {
  const Placement shard = program::kWhole.shard_on(axis_), owned = program::kWhole.owned_on(axis_);
  const auto is_shard = [&](const Value& value) {
    return value.placement == shard && !is_activation_or_gradient(value);
  };
  replace_shards(step);
  std::vector<Op> ops;
  const auto broadcast = [&](const Op& gather) {
    for (const Value& whole : gather.writes) {
      Op op{.kind = OpKind::kBroadcast,
            .lane = gather.lane,
            .reads = {},
            .writes = {whole},
            .axis = axis_,
            .peer = owners_[static_cast<size_t>(whole.index)]};
      if (is_own(step, whole.index)) op.reads = {placed(whole, owned)};
      ops.push_back(std::move(op));
    }
  };
  const auto reduce = [&](const Op& scatter) {
    const bool adds = scatter.reads.size() > scatter.writes.size();
    std::map<int, std::vector<Value>> by_owner;
    for (size_t i = 0; i < scatter.writes.size(); ++i)
      by_owner[owners_[static_cast<size_t>(scatter.writes[i].index)]].push_back(scatter.reads[i]);
    for (auto& [owner, gradients] : by_owner) {
      Op op{.kind = OpKind::kReduce,
            .lane = scatter.lane,
            .reads = gradients,
            .writes = {},
            .axis = axis_,
            .peer = owner};
      if (is_own(step, gradients[0].index)) {
        for (const Value& whole : gradients) op.writes.push_back(placed(whole, owned));
        if (adds) op.reads.insert(op.reads.end(), op.writes.begin(), op.writes.end());
      }
      ops.push_back(std::move(op));
    }
  };
  for (Op& op : step.ops) {
    const bool reads_shards = std::any_of(op.reads.begin(), op.reads.end(), is_shard);
    const bool writes_shards = std::any_of(op.writes.begin(), op.writes.end(), is_shard);
    if (op.kind == OpKind::kAllGather && op.axis == axis_ && reads_shards) {
      broadcast(op);
    } else if (op.kind == OpKind::kReduceScatter && op.axis == axis_ && writes_shards) {
      reduce(op);
    } else if (!reads_shards && !writes_shards) {
      ops.push_back(std::move(op));
    } else if (is_own(step, op.writes[0].index)) {  // an update
      for (auto* side : {&op.reads, &op.writes}) {
        for (Value& value : *side) {
          if (is_shard(value)) value.placement = owned;
        }
      }
      ops.push_back(std::move(op));
    }
  }
  step.ops = std::move(ops);
  return step;
}

std::vector<int> balanced_owners(const spec::ModelTable& model, const Stages& stages, int ranks) {
  std::vector<std::set<int>> stages_of_group(model.groups.size());
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    for (const int group : model.blocks[b].groups)
      stages_of_group[static_cast<size_t>(group)].insert(stages.rank_of_block[b]);
  }
  std::vector<size_t> order(model.groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto rank_in_order = [&](size_t group) {
    return std::pair(model.groups[group].frozen, -model.group_elements(static_cast<int>(group)));
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank_in_order(a) < rank_in_order(b); });
  std::map<std::pair<int, int>, int64_t> load;  // (stage, rank) -> parameters
  std::vector<int> owners(model.groups.size());
  for (const size_t group : order) {
    int64_t least = -1;
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t most = 0;
      for (const int stage : stages_of_group[group]) most = std::max(most, load[{stage, rank}]);
      if (least >= 0 && most >= least) continue;
      least = most;
      owners[group] = rank;
    }
    for (const int stage : stages_of_group[group])
      load[{stage, owners[group]}] += model.group_elements(static_cast<int>(group));
  }
  return owners;
}

bool has_owners(const spec::RunFile& run, const spec::Layout& layout) {
  return run.strategy.shard == "layers" && shard_axis(run, layout) != kNoAxis;
}

namespace {

// Throws kBadConfig for what does not go with owners.
void check_beside_owners(const StepContext& step) {
  const auto& strategy = step.run.strategy;
  const auto refuse = [](const std::string& setting, const std::string& rule, const std::string& fix) {
    throw Error(Code::kBadConfig, "strategy.shard = \"layers\" does not go with " + setting + ": " + rule +
                                      "\n  fix: " + fix + (fix.empty() ? "" : ", or ") + "strategy.shard = \"slices\"");
  };
  const auto quoted = [](const std::string& text) { return "\"" + text + "\""; };
  if (strategy.sync != "all_reduce")
    refuse("strategy.sync = " + quoted(strategy.sync), "servers own slices of every group",
           "strategy.sync = \"all_reduce\"");
  if (zero_stage(step.run, step.layout) == 0)
    refuse("strategy.zero = 0", "without ZeRO every rank has all of each group", "");
  if (step.run.mesh.ep > 1)
    refuse("mesh.ep = " + std::to_string(step.run.mesh.ep), "ranks that share experts have no single owner",
           "mesh.ep = 1");
  if (strategy.compression != "none")
    refuse("strategy.compression = " + quoted(strategy.compression), "encoded gradients are summed as wholes or slices",
           "strategy.compression = \"none\"");
  if (strategy.gather_codec != "none")
    refuse("strategy.gather_codec = " + quoted(strategy.gather_codec), "it encodes slices that are gathered",
           "strategy.gather_codec = \"none\"");
  if (strategy.secondary_shard)
    refuse("strategy.secondary_shard = true", "it keeps a slice on each rank of a host",
           "strategy.secondary_shard = false");
  if (strategy.delayed_update)
    refuse("strategy.delayed_update = true",
           "its updates run on the host, and what leaves the device is wholes or slices",
           "strategy.delayed_update = false with strategy.offload = \"none\"");
  if (strategy.offload != "none")
    refuse("strategy.offload = " + quoted(strategy.offload), "what leaves the device is wholes or slices",
           "strategy.offload = \"none\"");
}

}  // namespace

Technique layer_owners_row() {
  return {.name = "owners of layers",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.run.strategy.shard != "layers" || step.layout.gradient_ranks() == 1) return nullptr;
            check_beside_owners(step);
            const int axis = shard_axis(step.run, step.layout);
            std::vector<int64_t> weight_bytes;
            for (int group = 0; group < static_cast<int>(step.model.groups.size()); ++group)
              weight_bytes.push_back(step.model.group_elements(group) * size_of(step.model.compute_dtype));
            return std::make_unique<LayerOwners>(
                axis, balanced_owners(step.model, step.stages, step.layout.mesh.size(axis)), std::move(weight_bytes));
          },
          .extend_proof =
              [](const StepContext& step, program::Proof& proof) {
                if (!has_owners(step.run, step.layout)) return;
                const int ranks = step.layout.mesh.size(shard_axis(step.run, step.layout));
                proof.owners = balanced_owners(step.model, step.stages, ranks);
              },
          .supports = {{"strategy.shard", {"layers"}}}};
}

}  // namespace herd::strategies
