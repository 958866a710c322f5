#include "herd/strategies/expert_parallel.h"

#include <numeric>

namespace herd::strategies {

using program::Op;
using program::OpKind;

ExpertParallel::ExpertParallel(int axis, const spec::ModelTable& model) : axis_(axis) {
  for (const spec::BlockShape& block : model.blocks) exchanges_rows_.push_back(block.exchanges_rows);
}

std::string ExpertParallel::name() const { return "expert parallel"; }

program::Program ExpertParallel::rewrite(program::Program step) const {
  for (Op& op : step.ops) {
    const bool runs_experts =
        op.kind == OpKind::kForward || op.kind == OpKind::kRecompute || op.kind == OpKind::kBackward;
    if (runs_experts && exchanges_rows_[static_cast<size_t>(op.block)]) op.axis = axis_;
  }
  return step;
}

std::set<int> groups_of_experts(const spec::ModelTable& model) {
  std::set<int> groups;
  for (int group = 0; group < static_cast<int>(model.groups.size()); ++group) {
    if (model.groups[static_cast<size_t>(group)].of_experts) groups.insert(group);
  }
  return groups;
}

std::optional<spec::Unsupported> unsupported_with_expert_ranks(const spec::RunFile& run) {
  if (run.mesh.ep == 1) return std::nullopt;
  const auto& strategy = run.strategy;
  const std::string beside = " beside mesh.ep = " + std::to_string(run.mesh.ep);
  const auto refused = [&](const std::string& key, const std::string& value, const std::string& other) {
    return spec::Unsupported{key + " = " + value + beside, key + " = " + other + ", or mesh.ep = 1"};
  };
  const auto text = [](const std::string& value) { return "\"" + value + "\""; };
  if (strategy.secondary_shard) return refused("strategy.secondary_shard", "true", "false");
  if (strategy.sync != "all_reduce") return refused("strategy.sync", text(strategy.sync), "\"all_reduce\"");
  if (strategy.schedule != "fifo") return refused("strategy.schedule", text(strategy.schedule), "\"fifo\"");
  if (strategy.compression != "none") return refused("strategy.compression", text(strategy.compression), "\"none\"");
  return std::nullopt;
}

namespace {

// Lists the numbers of ranks that can share the experts: each holds as many.
std::vector<spec::KeyValue> expert_ranks(const spec::RunFile& run, const RankCounts& ranks) {
  std::vector<spec::KeyValue> out;
  if (!run.model.is_moe() || run.mesh.ep > 1) return out;
  const int64_t most = std::gcd(run.model.experts, data_ranks(run, ranks));
  for (int64_t ep = 2; ep <= most; ++ep) {
    if (most % ep == 0) out.emplace_back(ep);
  }
  return out;
}

}  // namespace

Technique expert_parallel_row() {
  return {.name = "expert parallel",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            if (step.layout.expert_axis == kNoAxis) return nullptr;
            return std::make_unique<ExpertParallel>(step.layout.expert_axis, step.model);
          },
          .extend_proof = [](const StepContext&, program::Proof& proof) { proof.experts_cut = true; },
          .supports = {{"mesh.ep", {}}},
          .alternatives = {{.key = "mesh.ep", .values = expert_ranks}}};
}

}  // namespace herd::strategies
