#include "herd/strategies/gradients_in_files.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/strategies/gradient_clipping.h"
#include "herd/strategies/weight_window.h"
#include "herd/strategies/zero1.h"

namespace herd::strategies {

using program::Op;
using program::OpKind;
using program::Program;
using program::Tier;
using program::Value;
using program::ValueKind;

namespace {

// Tells whether an op brings a gradient to the host.
bool evicts_gradient(const Op& op) {
  return op.kind == OpKind::kEvict && op.reads.at(0).kind == ValueKind::kGradient && op.reads[0].tier == Tier::kDevice;
}

void refuse(const StepContext& step) {
  const auto fail = [&](const std::string& why, const std::string& fix) {
    throw Error(Code::kBadConfig, "strategy.offload = \"" + step.run.strategy.offload + "\" " + why +
                                      "\n  fix: " + fix + ", or strategy.offload = \"" +
                                      (has_window(step.run) ? "window" : "nvme") + "\"");
  };
  const int stage = zero_stage(step.run, step.layout), least = has_window(step.run) ? 3 : 2;
  if (step.layout.gradient_ranks() > 1 && (stage < least || step.run.strategy.shard != "slices"))
    fail("writes what a rank updates of each " + std::string(least > 2 ? "weight and " : "") +
             "gradient, and strategy.zero = " + std::to_string(stage) + " with strategy.shard = \"" +
             step.run.strategy.shard + "\" keeps whole " + (stage < 2 ? "gradients" : "weights"),
         "strategy.zero = " + std::to_string(least) + " with strategy.shard = \"slices\"");
  if (step.layout.micro_batches > 1 && step.run.strategy.order != "layer_major")
    fail("writes each gradient once a step, and " + std::to_string(step.layout.micro_batches) +
             " micro-batches add to it, one after the other",
         "strategy.order = \"layer_major\", or train.micro_batch = " +
             std::to_string(step.layout.micro_batch * step.layout.micro_batches));
  const auto& mesh = step.run.mesh;
  if (needs_norm(step.run, step.layout) && (mesh.pp > 1 || mesh.tp > 1 || mesh.ep > 1))
    fail("takes the norm of each gradient by itself, where mesh.pp = " + std::to_string(mesh.pp) + ", mesh.tp = " +
             std::to_string(mesh.tp) + " and mesh.ep = " + std::to_string(mesh.ep) + " need one of all together",
         "optimizer.clip = 0 with health.check_finite = false");
}

}  // namespace

Program GradientsInFiles::rewrite(Program step) const {
  std::map<Value, size_t> completed;  // gradient on the device -> the op that completes it
  for (const Op& op : step.ops)
    if (evicts_gradient(op)) completed[op.reads[0]] = 0;
  std::vector<size_t> passes;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    if (is_pass(step.ops[i])) passes.push_back(i);
    for (const Value& value : step.ops[i].writes)
      if (const auto found = completed.find(value); found != completed.end()) found->second = i;
  }
  // Norms stand in front of the second pass from there on, evictions right behind the op.
  std::map<size_t, std::vector<Op>> behind, in_front;
  std::vector<bool> moved(step.ops.size());
  for (size_t i = 0; i < step.ops.size(); ++i) {
    Op& op = step.ops[i];
    const bool is_norm = op.kind == OpKind::kNorm && op.reads.size() == 1;
    const auto found = op.reads.empty() ? completed.end() : completed.find(op.reads[0]);
    if (found == completed.end() || (!is_norm && !evicts_gradient(op))) continue;
    moved[i] = true;
    const auto next = std::upper_bound(passes.begin(), passes.end(), found->second);
    const bool has_second = next != passes.end() && next + 1 != passes.end();
    if (!is_norm)
      behind[found->second].push_back(std::move(op));
    else
      in_front[has_second ? *(next + 1) : i].push_back(std::move(op));
  }
  for (const auto& [gradient, position] : completed) step.values.at(gradient).pooled = true;
  std::vector<Op> ops;
  for (size_t i = 0; i < step.ops.size(); ++i) {
    for (Op& op : in_front[i]) ops.push_back(std::move(op));
    if (!moved[i]) ops.push_back(std::move(step.ops[i]));
    for (Op& op : behind[i]) ops.push_back(std::move(op));
  }
  step.ops = std::move(ops);
  return step;
}

bool has_gradients_in_files(const spec::RunFile& run) {
  return run.strategy.offload == "nvme_gradients" || run.strategy.offload == "nvme_all";
}

Technique gradients_in_files_row() {
  return {.name = "gradients in files",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (!has_gradients_in_files(step.run)) return nullptr;
            refuse(step);
            return std::make_unique<GradientsInFiles>();
          },
          .supports = {{"strategy.offload", {"nvme_gradients", "nvme_all"}}}};
}

}  // namespace herd::strategies
