#include "herd/strategies/strategy_table.h"

#include <algorithm>
#include <map>
#include <set>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/program/build.h"
#include "herd/program/excerpts.h"
#include "herd/program/lifetimes.h"
#include "herd/program/memory_bound.h"
#include "herd/program/program_names.h"
#include "herd/program/slots.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/key_copies.h"
#include "herd/spec/stage_cut.h"
#include "herd/strategies/expert_parallel.h"
#include "herd/strategies/techniques.h"
#include "herd/strategies/tensor_parallel.h"

namespace herd::strategies {
namespace {

using program::Program;

void prove(const std::vector<Program>& programs, program::Expectation expected, const program::Proof& proof,
           const std::string& after) {
  expected.proof = proof;
  if (!programs.empty()) expected.micro_batches = programs[0].micro_batches;
  const auto findings = verify(programs, expected);
  if (findings.empty()) return;
  throw Error(Code::kBug, "the training step does not prove after " + after + ":\n" + to_string(findings, programs));
}

// Returns the smallest divisor above 1, or 1 where there is none.
int smallest_divisor(int number) {
  for (int divisor = 2; divisor * divisor <= number; ++divisor) {
    if (number % divisor == 0) return divisor;
  }
  return number;
}

bool have_same_memory(const Program& a, const Program& b) {
  return a.ops == b.ops && a.values == b.values && a.scratch == b.scratch;
}

// Checks the rank that needs most, so that the budget that the fix names is enough for all ranks.
void check_budget(const std::vector<Program>& steps, program::Tier tier, int64_t budget, const char* key,
                  const std::string& fix) {
  if (budget == 0) return;
  program::Peak peak;
  int rank = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i > 0 && have_same_memory(steps[i], steps[i - 1])) continue;
    program::Peak candidate = peak_bound(steps[i], tier, steps);
    if (tier == program::Tier::kDevice) candidate.bytes += uncounted_bytes(steps[i]);
    if (candidate.bytes <= peak.bytes) continue;
    peak = std::move(candidate);
    rank = steps[i].rank;
  }
  if (peak.bytes <= budget) return;
  constexpr int64_t kKiB = 1024;
  throw Error(Code::kOverBudget,
              "rank " + std::to_string(rank) + " needs up to " + format_bytes(static_cast<double>(peak.bytes)) +
                  ", but " + key + " = " + format_bytes(static_cast<double>(budget)) + "\n" + memory_table(peak) +
                  "  fix: " + fix + ", or " + key + " = \"" + std::to_string((peak.bytes + kKiB - 1) / kKiB) + "KiB\"");
}

}  // namespace

program::Expectation expectation_of(const spec::ModelTable& model, const spec::Layout& layout) {
  program::Expectation expected;
  const std::vector<bool> have_backward = model.have_backward();
  for (int b = 0; b < static_cast<int>(model.blocks.size()); ++b) {
    const spec::BlockShape& block = model.blocks[static_cast<size_t>(b)];
    expected.block_groups.push_back(block.groups);
    expected.backward_without_weights.push_back(!block.backward_reads_weights);
    expected.block_inputs.push_back(model.inputs_of(b));
    std::vector<bool>& outputs = expected.block_outputs.emplace_back(block.outputs.empty() ? 1 : 0, true);
    for (const spec::TensorShape& tensor : block.outputs) outputs.push_back(tensor.differentiable);
    expected.block_splits.push_back(block.split);
    expected.block_gives_heads.push_back(block.gives_heads);
    expected.block_by_heads.push_back(block.by_heads);
    expected.block_in_ring.push_back(block.in_ring);
    expected.block_shares_choices.push_back(block.shares_choices);
    expected.block_by_experts.push_back(block.by_experts);
    expected.block_routes.push_back(block.routing_bytes > 0 && have_backward[static_cast<size_t>(b)]);
  }
  expected.block_routed_by = routed_by(model);
  expected.has_targets = model.target_bytes > 0;
  expected.whole_tensors = whole_tensors(model);
  expected.copied_groups = axes_of_copies(model, layout);
  for (int group = 0; group < static_cast<int>(model.groups.size()); ++group) {
    if (model.groups[static_cast<size_t>(group)].frozen) expected.frozen_groups.insert(group);
  }
  expected.mesh = layout.mesh;
  expected.expert_groups = groups_of_experts(model);
  expected.block_rank = spec::rank_of_blocks(model, layout.pp, layout.pipeline);
  return expected;
}

int64_t uncounted_bytes(const Program& step) {
  constexpr int64_t kOfGroup = 512, kOfStep = 4096;
  const auto groups = std::count_if(step.values.begin(), step.values.end(), [](const auto& entry) {
    return entry.first.kind == program::ValueKind::kWeight && entry.first.tier == program::Tier::kDevice;
  });
  return kOfStep + kOfGroup * static_cast<int64_t>(groups);
}

void check_budgets(const std::vector<Program>& steps, const spec::RunFile& run) {
  check_budget(steps, program::Tier::kDevice, run.memory.device_budget, "memory.device_budget",
               "a smaller train.micro_batch");
  check_budget(
      steps, program::Tier::kHost, run.memory.host_budget, "memory.host_budget",
      run.strategy.offload.starts_with("nvme") ? "more ranks with strategy.zero" : "strategy.offload = \"nvme\"");
}

program::SlotRules slot_rules(const spec::RunFile& run) {
  program::SlotRules rules;
  for (const Technique& row : techniques()) {
    if (row.set_pool_sizes != nullptr) row.set_pool_sizes(run, rules);
  }
  return rules;
}

std::vector<StrategyRow> strategy_rows(const spec::RunFile& run, const spec::ModelTable& model,
                                       const spec::Layout& layout) {
  const StepContext step(run, model, layout);
  program::Proof proof = {.data_ranks_summed = false,
                          .stages_summed = false,
                          .rows_summed = false,
                          .copies_summed = false,
                          .blocks_split = false,
                          .tokens_cut = false,
                          .experts_cut = false,
                          .clipped = false,
                          .released = false};
  std::vector<StrategyRow> rows;
  for (const Technique& technique : techniques()) {
    if (technique.extend_proof != nullptr) technique.extend_proof(step, proof);
    std::unique_ptr<Strategy> strategy = technique.rewrite_for != nullptr ? technique.rewrite_for(step) : nullptr;
    if (strategy != nullptr) rows.push_back({std::move(strategy), proof});
  }
  rows.back().establishes = proof;
  return rows;
}

Program compile_step(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout, int rank) {
  Program step = program::plain_step(run, model, layout, rank);
  for (const StrategyRow& row : strategy_rows(run, model, layout)) step = row.strategy->rewrite(std::move(step));
  return assign_slots(add_releases(std::move(step)), slot_rules(run));
}

std::vector<Program> compile_and_verify(const spec::RunFile& run, const spec::ModelTable& model,
                                        const spec::Layout& layout) {
  const program::Expectation expected = expectation_of(model, layout);
  std::vector<Program> steps;
  for (int rank = 0; rank < layout.world_size; ++rank) steps.push_back(program::plain_step(run, model, layout, rank));
  const std::vector<StrategyRow> rows = strategy_rows(run, model, layout);
  prove(steps, expected, rows[0].establishes, "the plain step");
  for (const StrategyRow& row : rows) {
    for (Program& step : steps) step = row.strategy->rewrite(std::move(step));
    prove(steps, expected, row.establishes, row.strategy->name());
  }
  for (Program& step : steps) step = assign_slots(add_releases(std::move(step)), slot_rules(run));
  program::Proof all = rows.back().establishes;
  all.released = true;
  prove(steps, expected, all, "releases and slots");
  std::vector<Program> forward;
  for (const Program& step : steps) forward.push_back(program::forward_only(step));
  program::Expectation losses = expected;
  losses.trains = false;
  prove(forward, losses, all, "leaving all but the losses out");
  check_budgets(steps, run);
  return steps;
}

std::vector<int> ranks_of_stages(const spec::Layout& layout) { return layout.mesh.ranks(layout.stage_axis, 0); }

bool proves_run_itself(const Program& step, const spec::Layout& layout) {
  return layout.world_size <= kMaxProvedRanks &&
         step.ops.size() * static_cast<size_t>(layout.world_size) <= kMaxProvedOps;
}

namespace {

// Says what layers a stage has: bit 0 layers with experts, bit 1 layers without, or neither.
using KindOfStage = unsigned;
std::set<KindOfStage> kinds_of_stages(const spec::RunFile& run, const spec::Layout& layout) {
  const spec::ModelTable model = spec::program_table(run, layout.micro_batch);
  const std::vector<int> stages = spec::stage_of_blocks(model, layout.pp, layout.pipeline);
  const int embedding = model.blocks.front().layer, head = model.blocks.back().layer;
  std::set<int> with_experts;
  std::map<int, KindOfStage> kinds;  // by stage
  for (const spec::BlockShape& block : model.blocks) {
    if (block.routing_bytes > 0) with_experts.insert(block.layer);
  }
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const int layer = model.blocks[b].layer;
    KindOfStage& kind = kinds[stages[b]];
    if (layer != embedding && layer != head) kind |= with_experts.contains(layer) ? 1U : 2U;
  }
  std::set<KindOfStage> out;
  for (const auto& [stage, kind] : kinds) out.insert(kind);
  return out;
}

// Returns how many layers of a quotient have no experts: the fewest with which it has a stage of each kind that the run
// has, or else of most kinds.
int64_t dense_layers_of_quotient(const spec::RunFile& run, const spec::Layout& layout, Quotient quotient) {
  if (!run.model.is_moe() || run.model.dense_layers == 0 || quotient.run.model.layers == 1) return 0;
  if (layout.pp == 1) return 1;
  const std::set<KindOfStage> kinds = kinds_of_stages(run, layout);
  int64_t best = 1;
  size_t most = 0;
  for (int64_t dense = 1; dense < quotient.run.model.layers; ++dense) {
    quotient.run.model.dense_layers = dense;
    const std::set<KindOfStage> found = kinds_of_stages(quotient.run, spec::resolve_mesh(quotient.run, quotient.ranks));
    const auto common =
        static_cast<size_t>(std::ranges::count_if(kinds, [&](const KindOfStage kind) { return found.contains(kind); }));
    if (common > most) most = common, best = dense;
  }
  return best;
}

}  // namespace

Quotient quotient_of(const spec::RunFile& run, const spec::Layout& layout, bool is_chain) {
  const auto at_most_two = [](int size) { return std::min(size, 2); };
  // Where ranks hold copies of keys, the tensor axis is made of two: ranks with other keys, and ranks with copies.
  const int copies = spec::key_copies(run), keys = smallest_divisor(layout.tp / copies);
  const int tensor = copies > 1 ? keys * smallest_divisor(copies) : smallest_divisor(layout.tp);
  // An order in a file fits this number of stages and micro-batches only.
  const bool order_in_file = !spec::order_file_of(run).empty();
  const int stages = order_in_file || is_chain ? layout.pp : std::min(layout.pp, 3);
  const int context = smallest_divisor(layout.cp);
  // A secondary shard takes two hosts, each of two ranks that hold shards.
  const bool has_hosts = layout.local_axis != kNoAxis;
  int fsdp = has_hosts && layout.fsdp > 1 ? 4 : at_most_two(layout.fsdp);
  int data = has_hosts && layout.fsdp == 1 ? 4 : at_most_two(layout.dp);
  // Ranks that hold experts together, and as many groups of them as there are ranks with the same ones, two at most.
  int experts = 1;
  if (layout.ep > 1) {
    const int same = at_most_two(layout.gradient_ranks() / layout.ep);
    if (data * fsdp * context <= same) (data > 1 || fsdp == 1 ? data : fsdp) *= 2;
    experts = data * fsdp * context / same;
  }
  Quotient out{run, stages * data * fsdp * context * tensor + layout.dedicated_servers};
  out.run.strategy.servers = std::min<int64_t>(run.strategy.servers, data * fsdp);
  if (has_hosts) out.run.mesh.ranks_per_host = 2 * context * tensor;
  if (copies > 1) out.run.model.kv_heads = keys;
  if (context > 1 && copies == 1) out.run.model.kv_heads = run.model.heads;  // which its ranks divide
  out.run.mesh.cp = context;
  out.run.mesh.pp = stages;
  out.run.mesh.ep = experts;
  if (layout.ep > 1) {
    out.run.model.experts = run.model.experts / layout.ep * experts;  // of which a rank holds as many
    out.run.model.top_k = std::min(run.model.top_k, out.run.model.experts);
  }
  out.run.mesh.dp = data, out.run.mesh.fsdp = fsdp, out.run.mesh.tp = tensor;
  // Takes two groups of micro-batches that take turns in an order, and one micro-batch more.
  const int64_t turns = std::max<int64_t>(2 * stages, run.strategy.interleave_micro_batches);
  const int64_t micro_batches =
      order_in_file ? layout.micro_batches : std::min<int64_t>(layout.micro_batches, turns + 1);
  out.run.train.micro_batch = layout.micro_batch;
  out.run.train.batch = micro_batches * layout.micro_batch * data * fsdp;
  const bool names_layers =
      run.model.frozen != "none" || run.strategy.direct_host != "none";  // patterns name any layer
  if (!names_layers && !is_chain) {
    out.run.model.layers =
        std::min<int64_t>(run.model.layers, std::max(2 * stages * layout.pipeline.stages_per_rank, 4));
    const bool all_in_files = run.strategy.file_layers >= run.model.layers;
    if (run.strategy.file_layers > 0)
      out.run.strategy.file_layers =
          all_in_files ? out.run.model.layers : std::min<int64_t>(run.strategy.file_layers, 2);
    out.run.model.dense_layers = dense_layers_of_quotient(run, layout, out);
  }
  out.run.memory = {};
  return out;
}

std::string quotient_text(const spec::RunFile& run, const spec::Layout& layout, const Program& step, bool is_chain) {
  if (proves_run_itself(step, layout)) return "";
  const Quotient quotient = quotient_of(run, layout, is_chain);
  const spec::Layout small = spec::resolve_mesh(quotient.run, quotient.ranks);
  return std::to_string(small.world_size) + " ranks that stand for " + std::to_string(layout.world_size) + " (" +
         summary(small) + ")";
}

std::vector<Program> programs_of_run(const spec::RunFile& run, const spec::ModelTable& model,
                                     const spec::Layout& layout, const std::vector<int>& ranks) {
  std::vector<Program> steps = {compile_step(run, model, layout, ranks.at(0))};
  if (proves_run_itself(steps[0], layout)) {
    const std::vector<Program> all = compile_and_verify(run, model, layout);
    steps.clear();
    for (const int rank : ranks) steps.push_back(all[static_cast<size_t>(rank)]);
    return steps;
  }
  for (size_t i = 1; i < ranks.size(); ++i) steps.push_back(compile_step(run, model, layout, ranks[i]));
  check_budgets(steps, run);
  const Quotient quotient = quotient_of(run, layout, model.is_chain());
  spec::Layout small = spec::resolve_mesh(quotient.run, quotient.ranks);
  if (model.is_chain()) small.pipeline = layout.pipeline;
  compile_and_verify(quotient.run, model.is_chain() ? model : spec::program_table(quotient.run, small.micro_batch),
                     small);
  return steps;
}

}  // namespace herd::strategies
