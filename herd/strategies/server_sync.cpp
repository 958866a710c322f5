#include "herd/strategies/server_sync.h"

#include <algorithm>
#include <map>
#include <vector>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/program/build.h"
#include "herd/program/program_names.h"
#include "herd/spec/build_model_table.h"

namespace herd::strategies {

using program::Lane;
using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

namespace {

// Returns the index of the last op that reads a group's weights or touches its gradient, for each group with one.
std::map<int, size_t> last_uses(const Program& step) {
  std::map<int, size_t> last;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    if (step.ops[i].kind == OpKind::kStep) continue;
    for (const auto* side : {&step.ops[i].reads, &step.ops[i].writes}) {
      for (const Value& value : *side) {
        const bool used = value.kind == ValueKind::kWeight || value.kind == ValueKind::kGradient;
        if (used && step.values.contains(program::gradient(value.index))) last[value.index] = i;
      }
    }
  }
  return last;
}

// Throws kBadConfig for what does not go with servers.
void check_run(const StepContext& step) {
  const spec::RunFile& run = step.run;
  const auto refuse = [&](bool wrong, const std::string& setting, const std::string& rule, const std::string& fix) {
    if (!wrong) return;
    throw Error(Code::kBadConfig, "strategy.sync = \"" + run.strategy.sync + "\" does not go with " + setting + ": " +
                                      rule + "\n  fix: " + fix + ", or strategy.sync = \"all_reduce\"");
  };
  const auto text = [](int64_t number) { return std::to_string(number); };
  refuse(run.optimizer.clip > 0, "optimizer.clip > 0",
         "no rank has the norm of the whole gradient before the servers update", "optimizer.clip = 0");
  refuse(run.strategy.zero > 0, "strategy.zero = " + text(run.strategy.zero),
         "the servers keep the states, each a part of them", "strategy.zero = 0");
  refuse(step.layout.fsdp > 1, "mesh.fsdp = " + text(step.layout.fsdp),
         "the servers keep the states, each a part of them", "mesh.fsdp = 1");
  refuse(step.layout.tp > 1, "mesh.tp = " + text(step.layout.tp), "each rank pushes gradients of the whole model",
         "mesh.tp = 1");
  refuse(step.layout.pp > 1, "mesh.pp = " + text(step.layout.pp), "each rank pushes gradients of the whole model",
         "mesh.pp = 1");
  refuse(step.layout.cp > 1, "mesh.cp = " + text(step.layout.cp),
         "ranks that share tokens would push parts of gradients", "mesh.cp = 1");
  refuse(run.strategy.servers > step.layout.data_ranks(), "strategy.servers = " + text(run.strategy.servers),
         "data ranks serve, and there are " + text(step.layout.data_ranks()), "strategy.servers = 0");
  refuse(run.strategy.precision != "fp32", "strategy.precision = \"" + run.strategy.precision + "\"",
         "the servers keep and update fp32 weights", "strategy.precision = \"fp32\"");
  refuse(run.optimizer.momentum_precision != "fp32",
         "optimizer.momentum_precision = \"" + run.optimizer.momentum_precision + "\"", "the servers keep fp32 states",
         "optimizer.momentum_precision = \"fp32\"");
  refuse(run.strategy.offload != "none", "strategy.offload = \"" + run.strategy.offload + "\"",
         "the servers keep the states on the host already", "strategy.offload = \"none\"");
}

// Of M bytes of gradients each of k dedicated servers keeps M/k of weights, what the optimizer keeps of as many
// elements, and room for n * M/k of pushes. No Program says so.
void check_server_memory(const StepContext& step) {
  const int servers = step.layout.dedicated_servers, ranks = step.layout.data_ranks();
  const int64_t budget = step.run.memory.host_budget;
  if (servers == 0 || budget == 0) return;
  int64_t elements = 0;
  for (size_t g = 0; g < step.model.groups.size(); ++g) {
    if (!step.model.groups[g].frozen) elements += step.model.group_elements(static_cast<int>(g));
  }
  const int64_t per_element = 4 + program::state_bytes_per_parameter(step.run) + 4 * ranks;
  const int64_t bytes = elements * per_element / servers;
  if (bytes <= budget) return;
  throw Error(Code::kOverBudget,
              "a dedicated server holds weights, states and the gradients of " + std::to_string(ranks) + " ranks, " +
                  std::to_string(elements) + " elements * " + std::to_string(per_element) + " bytes / " +
                  std::to_string(servers) + (servers == 1 ? " server = " : " servers = ") +
                  format_bytes(static_cast<double>(bytes)) + ", but memory.host_budget = " +
                  format_bytes(static_cast<double>(budget)) + "\n  fix: strategy.dedicated_servers = " +
                  std::to_string((elements * per_element + budget - 1) / budget) + ", or a larger memory.host_budget");
}

ServerSync::Servers servers_of(const StepContext& step) {
  if (step.layout.dedicated_servers > 0) return {.dedicated = step.layout.dedicated_servers};
  return {.on_axis = num_servers(step.run, step.layout)};
}

// A bound that nothing keeps is refused rather than left aside.
void check_staleness(const spec::RunFile& run) {
  if (run.strategy.staleness <= 0 || run.strategy.sync == "server_async") return;
  throw Error(Code::kBadConfig, "strategy.staleness = " + std::to_string(run.strategy.staleness) +
                                    " does not go with strategy.sync = \"" + run.strategy.sync +
                                    "\": its ranks wait for each other in every step\n  fix: strategy.sync = "
                                    "\"server_async\", or leave strategy.staleness out");
}

}  // namespace

std::string ServerSync::name() const { return "parameter servers"; }

Program ServerSync::rewrite(Program step) const {
  const std::map<int, size_t> last = last_uses(step);
  const int ranks = step.mesh.size(axis_);
  const bool serves = step.mesh.index(axis_, step.rank) < servers_.on_axis;
  const auto part_of = [&](int64_t bytes) { return (bytes + servers_.on_axis - 1) / servers_.on_axis; };
  std::vector<Op> ops;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    if (step.ops[i].kind == OpKind::kStep) continue;
    ops.push_back(step.ops[i]);
    for (const auto& [group, at] : last) {
      if (at != i) continue;
      // So the weights may come at any time from the push on.
      const Op& use = step.ops[i];
      HERD_CHECK(use.lane == Lane::kCompute &&
                     std::find(use.writes.begin(), use.writes.end(), program::gradient(group)) != use.writes.end(),
                 "no op uses a group's weights once its gradient is complete");
      const Value gradient = program::gradient(group), pushed = program::pushed(group), weight = program::weight(group);
      const Value sent = in_tier(gradient, tier_), received = in_tier(weight, tier_);
      const int64_t gradient_bytes = step.values.at(gradient).bytes, weight_bytes = step.values.at(weight).bytes;
      if (tier_ == Tier::kHost) {
        step.values[sent] = {.bytes = gradient_bytes, .pooled = true};
        step.values[received] = {.bytes = weight_bytes, .persistent = true};  // it comes at any time from the push on
        ops.push_back({.kind = OpKind::kEvict, .lane = Lane::kCopyOut, .reads = {gradient}, .writes = {sent}});
      }
      step.values[pushed] = {.bytes = serves ? part_of(ranks * gradient_bytes) : 0, .persistent = true};
      ops.push_back({.kind = OpKind::kPush,
                     .lane = Lane::kReduce,
                     .reads = {sent},
                     .writes = {pushed},
                     .axis = axis_,
                     .servers = servers_.dedicated});
      Op pull{.kind = OpKind::kPull,
              .lane = Lane::kGather,
              .reads = {pushed},
              .writes = {received},
              .axis = axis_,
              .staleness = staleness_,
              .servers = servers_.dedicated};
      auto kept = step.values.extract(program::state(group));
      if (serves) {
        const Value state = in_tier(placed(kept.key(), program::kWhole.shard_on(axis_)), Tier::kHost);
        kept.key() = state;
        kept.mapped().bytes = part_of(kept.mapped().bytes + weight_bytes);  // the servers' weights, too
        step.values.insert(std::move(kept));
        pull.reads.push_back(state);
        pull.writes.push_back(state);
      }
      ops.push_back(std::move(pull));
      if (tier_ == Tier::kHost)
        ops.push_back({.kind = OpKind::kFetch, .lane = Lane::kCopyIn, .reads = {received}, .writes = {weight}});
    }
  }
  step.ops = std::move(ops);
  return step;
}

bool uses_servers(const spec::RunFile& run, const spec::Layout& layout) {
  return run.strategy.sync != "all_reduce" && (layout.data_ranks() > 1 || layout.dedicated_servers > 0);
}

int staleness(const spec::RunFile& run, const spec::Layout& layout) {
  if (run.strategy.sync != "server_async" || !uses_servers(run, layout)) return 0;
  return static_cast<int>(run.strategy.staleness);
}

int num_servers(const spec::RunFile& run, const spec::Layout& layout) {
  if (layout.dedicated_servers > 0) return layout.dedicated_servers;
  return run.strategy.servers == 0 ? layout.data_ranks() : static_cast<int>(run.strategy.servers);
}

Technique server_sync_row() {
  return {.name = "parameter servers",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            check_staleness(step.run);
            if (!uses_servers(step.run, step.layout)) return nullptr;
            check_run(step);
            check_server_memory(step);
            const bool beside_device = spec::kernels_of(step.run) == spec::Kernels::kDevice;
            return std::make_unique<ServerSync>(step.layout.data_axis, servers_of(step),
                                                staleness(step.run, step.layout),
                                                beside_device ? Tier::kHost : Tier::kDevice);
          },
          .extend_proof =
              [](const StepContext& step, program::Proof& proof) {
                if (!uses_servers(step.run, step.layout)) return;
                proof.shard_axis = step.layout.data_axis;
                proof.num_servers = servers_of(step).on_axis;
                proof.dedicated_servers = servers_of(step).dedicated;
                proof.staleness = staleness(step.run, step.layout);
              },
          .supports = {{"strategy.sync", {"server", "server_async"}},
                       {"strategy.servers", {}},
                       {"strategy.dedicated_servers", {}},
                       {"strategy.staleness", {}}}};
}

}  // namespace herd::strategies
