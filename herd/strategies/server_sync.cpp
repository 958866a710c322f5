#include "herd/strategies/server_sync.h"

#include <algorithm>
#include <map>
#include <vector>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/program/program_names.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Program;
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
  refuse(run.device.kind != "cpu" && run.device.kind != "auto", "device.kind = \"" + run.device.kind + "\"",
         "gradients are pushed from the host's memory", "device.kind = \"cpu\"");
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
  const bool serves = step.mesh.index(axis_, step.rank) < num_servers_;
  const auto part_of = [&](int64_t bytes) { return (bytes + num_servers_ - 1) / num_servers_; };
  std::vector<Op> ops;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    if (step.ops[i].kind == OpKind::kStep) continue;
    ops.push_back(step.ops[i]);
    for (const auto& [group, at] : last) {
      if (at != i) continue;
      // So the weights may come at any time from the push on.
      const Op& use = step.ops[i];
      HERD_CHECK(use.lane == program::Lane::kCompute &&
                     std::find(use.writes.begin(), use.writes.end(), program::gradient(group)) != use.writes.end(),
                 "no op uses a group's weights once its gradient is complete");
      const Value gradient = program::gradient(group), pushed = program::pushed(group), weight = program::weight(group);
      const int64_t gradient_bytes = step.values.at(gradient).bytes;
      step.values[pushed] = {.bytes = serves ? part_of(ranks * gradient_bytes) : 0, .persistent = true};
      ops.push_back({.kind = OpKind::kPush,
                     .lane = program::Lane::kReduce,
                     .reads = {gradient},
                     .writes = {pushed},
                     .axis = axis_});
      Op pull{.kind = OpKind::kPull,
              .lane = program::Lane::kGather,
              .reads = {pushed},
              .writes = {weight},
              .axis = axis_,
              .staleness = staleness_};
      auto kept = step.values.extract(program::state(group));
      if (serves) {
        const Value state = in_tier(placed(kept.key(), program::kWhole.shard_on(axis_)), program::Tier::kHost);
        kept.key() = state;
        kept.mapped().bytes = part_of(kept.mapped().bytes + step.values.at(weight).bytes);  // the servers' weights, too
        step.values.insert(std::move(kept));
        pull.reads.push_back(state);
        pull.writes.push_back(state);
      }
      ops.push_back(std::move(pull));
    }
  }
  step.ops = std::move(ops);
  return step;
}

bool uses_servers(const spec::RunFile& run, const spec::Layout& layout) {
  return run.strategy.sync != "all_reduce" && layout.data_ranks() > 1;
}

int staleness(const spec::RunFile& run, const spec::Layout& layout) {
  if (run.strategy.sync != "server_async" || !uses_servers(run, layout)) return 0;
  return static_cast<int>(run.strategy.staleness);
}

int num_servers(const spec::RunFile& run, const spec::Layout& layout) {
  return run.strategy.servers == 0 ? layout.data_ranks() : static_cast<int>(run.strategy.servers);
}

Technique server_sync_row() {
  return {.name = "parameter servers",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            check_staleness(step.run);
            if (!uses_servers(step.run, step.layout)) return nullptr;
            check_run(step);
            return std::make_unique<ServerSync>(step.layout.data_axis, num_servers(step.run, step.layout),
                                                staleness(step.run, step.layout));
          },
          .extend_proof =
              [](const StepContext& step, program::Proof& proof) {
                if (!uses_servers(step.run, step.layout)) return;
                proof.shard_axis = step.layout.data_axis;
                proof.num_servers = num_servers(step.run, step.layout);
                proof.staleness = staleness(step.run, step.layout);
              },
          .supports = {{"strategy.sync", {"server", "server_async"}},
                       {"strategy.servers", {}},
                       {"strategy.staleness", {}}}};
}

}  // namespace herd::strategies
