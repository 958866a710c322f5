#include "herd/strategies/expert_parallel.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/program/value_memory.h"

namespace herd::strategies {

using program::Dimension;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

std::vector<int> routed_by(const spec::ModelTable& model) {
  std::vector<int> out(model.blocks.size(), -1);
  const auto readers = model.readers();
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    if (!model.blocks[b].by_experts) continue;
    const int routes = model.inputs_of(static_cast<int>(b)).at(0).producer - 1;
    out[b] = out[static_cast<size_t>(routes)] = routes;
    for (const int reader : readers.at({static_cast<int>(b) + 1, 0})) out[static_cast<size_t>(reader)] = routes;
  }
  return out;
}

ExpertParallel::ExpertParallel(int axis, const spec::ModelTable& model, const HostRelays& relays)
    : axis_(axis), relays_(relays), element_bytes_(static_cast<int64_t>(size_of(model.compute_dtype))) {
  const std::vector<int> routing = routed_by(model);
  blocks_.resize(model.blocks.size());
  std::map<int, int> combining;  // by routing block
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const spec::BlockShape& block = model.blocks[b];
    const int own = static_cast<int>(b);
    routing_bytes_.push_back(block.routing_bytes);
    exchanged_bytes_.push_back(block.exchanged_bytes);
    if (routing[b] < 0) continue;
    blocks_[b] = {routing[b] == own  ? Role::kRoutes
                  : block.by_experts ? Role::kRunsExperts
                                     : Role::kCombines,
                  routing[b]};
    if (blocks_[b].role == Role::kCombines) combining[routing[b]] = own;
  }
  for (const int group : groups_of_experts(model))
    counts_bytes_ = model.ep * model.groups[static_cast<size_t>(group)].parameters.at(0).sizes.at(0) * 8;
  for (Block& block : blocks_) {
    if (block.role != Role::kNone) block.combined_by = combining.at(block.routed_by);
  }
}

int64_t relay_bytes(const HostRelays& relays, int64_t hosts, int64_t tokens_bytes, int64_t element_bytes) {
  if (hosts == 1 || relays.top_k == 1 || relays.experts <= hosts) return 0;  // rows go straight (nn::tell_counts)
  const int64_t of_source = std::min(relays.top_k, relays.experts / hosts) * tokens_bytes;
  const int64_t rows_of_source = of_source / (relays.width * element_bytes);
  const int64_t in_fp32 = of_source * 4 / element_bytes * (element_bytes == 4 ? 1 : 2);
  return (hosts - 1) * (2 * tokens_bytes + of_source + 2 * 4 * rows_of_source) + in_fp32;
}

std::string ExpertParallel::name() const { return "expert parallel"; }

// Rewrites the ops of a step, in order.
class ExpertParallel::Exchanges {
 public:
  Exchanges(const ExpertParallel& rewrite, Program& step) : axis_(rewrite.axis_), rewrite_(rewrite), step_(step) {}

  std::vector<Op> take() { return std::move(ops_); }

  void add(Op op) {
    const Block block = is_pass(op) ? rewrite_.blocks_[static_cast<size_t>(op.block)] : Block{};
    if (block.role == Role::kNone) return ops_.push_back(std::move(op));
    const bool is_forward = op.kind == OpKind::kForward || op.kind == OpKind::kRecompute;
    const Value routing = program::routing(block.routed_by, op.micro_batch);
    std::vector<Op> after;
    if (is_forward && block.role == Role::kRoutes) tell_counts(op, routing, after);
    if (is_forward && block.role != Role::kRoutes) op.reads.push_back(routing);
    const bool at_experts = block.role == Role::kRunsExperts;
    for (Value& value : op.writes) {
      if (is_exchanged(value)) after.push_back(exchange(value, routing, !at_experts, block));
    }
    if (at_experts) {
      for (auto* side : {&op.reads, &op.writes}) {
        for (Value& value : *side) {
          if (is_exchanged(value)) value = of_experts(value);
        }
      }
    }
    ops_.push_back(std::move(op));
    std::move(after.begin(), after.end(), std::back_inserter(ops_));
  }

 private:
  // Tells whether it is what experts read or give, or a gradient of that.
  bool is_exchanged(const Value& value) const {
    if (!is_activation_or_gradient(value) || value.index == 0 || value.tensor != 0) return false;
    const Role made_by = rewrite_.blocks_[static_cast<size_t>(value.index) - 1].role;
    return made_by == Role::kRoutes || made_by == Role::kRunsExperts;
  }

  // Returns the rows at their experts, and declares them.
  Value of_experts(const Value& value) {
    const Block& maker = rewrite_.blocks_[static_cast<size_t>(value.index) - 1];
    const int experts = maker.role == Role::kRoutes ? value.index : value.index - 1;  // the block follows its router
    const Value out = placed(value, value.placement.shard_on(axis_, Dimension::kExperts));
    step_.values[out] = {.bytes = rewrite_.exchanged_bytes_[static_cast<size_t>(experts)]};
    return out;
  }

  // A pass that chooses learns the counts of all ranks; one that takes over what was chosen reads it.
  void tell_counts(Op& op, const Value& routing, std::vector<Op>& after) {
    if (std::ranges::count(op.reads, routing) > 0) return;
    std::erase(op.writes, routing);
    const Value own = placed(routing, routing.placement.shard_on(axis_));
    const int64_t bytes = rewrite_.routing_bytes_[static_cast<size_t>(routing.index)];
    step_.values[routing] = {.bytes = bytes};
    step_.values[own] = {.bytes = bytes - rewrite_.counts_bytes_};
    op.writes.push_back(own);
    after.push_back({.kind = OpKind::kAllGather,
                     .lane = program::Lane::kActivations,
                     .reads = {own},
                     .writes = {routing},
                     .axis = axis_});
  }

  Op exchange(const Value& value, const Value& routing, bool to_experts, const Block& block) {
    Op op{.kind = OpKind::kAllToAll,
          .lane = program::Lane::kActivations,
          .reads = {to_experts ? value : of_experts(value), routing},
          .writes = {to_experts ? of_experts(value) : value},
          .axis = axis_};
    if (to_experts) plan_relays(op, step_.values.at(value).bytes);
    if (to_experts && value.kind == ValueKind::kActivationGradient) {
      Value of_tokens = program::activation_gradient({block.combined_by + 1, 0}, value.micro_batch);
      of_tokens.placement = value.placement;
      op.reads.push_back(of_tokens);
    }
    return op;
  }

  // Adds what a rank holds while it gives so many bytes of rows, one for each token and expert, to other hosts.
  void plan_relays(const Op& op, int64_t rows_bytes) {
    const HostRelays& relays = rewrite_.relays_;
    if (relays.ranks_per_host == 0) return;
    std::set<int> hosts;
    for (const int rank : step_.mesh.ranks(axis_, step_.rank)) hosts.insert(rank / relays.ranks_per_host);
    const int64_t bytes = relay_bytes(relays, std::ssize(hosts), rows_bytes / relays.top_k, rewrite_.element_bytes_);
    if (bytes == 0) return;
    int64_t& scratch = step_.scratch[program::scratch_key(op)];
    scratch = std::max(scratch, bytes);
  }

  const int axis_;
  const ExpertParallel& rewrite_;
  Program& step_;
  std::vector<Op> ops_;
};

Program ExpertParallel::rewrite(Program step) const {
  Exchanges exchanges(*this, step);
  for (Op& op : step.ops) exchanges.add(std::move(op));
  step.ops = exchanges.take();
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
            const auto& model = step.run.model;
            return std::make_unique<ExpertParallel>(
                step.layout.expert_axis, step.model,
                HostRelays{static_cast<int>(step.run.mesh.ranks_per_host), model.top_k, model.experts, model.width});
          },
          .extend_proof = [](const StepContext&, program::Proof& proof) { proof.experts_cut = true; },
          .supports = {{"mesh.ep", {}}},
          .alternatives = {{.key = "mesh.ep", .values = expert_ranks}}};
}

}  // namespace herd::strategies
