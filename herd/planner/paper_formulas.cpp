#include "herd/planner/paper_formulas.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "herd/planner/differences_internal.h"
#include "herd/spec/compute.h"

namespace herd::planner {
namespace {

using spec::RecomputeKind;

std::vector<PrecisionRecipe> known_recipes() {
  return {{"fp32", {{"weight", 4}, {"gradient", 4}, {"momentum", 4}, {"variance", 4}}, "strategy.precision=fp32"},
          {"bf16 gradient and momentum",
           {{"weight", 4}, {"gradient", 2}, {"momentum", 2}, {"variance", 4}},
           "strategy.precision=bf16 optimizer.momentum_precision=bf16"},
          {"fp16, fp32 master and moments",
           {{"weight", 2}, {"gradient", 2}, {"master", 4}, {"momentum", 4}, {"variance", 4}},
           "strategy.precision=fp16"},
          {"the same, fp32 gradient copy",
           {{"weight", 2}, {"gradient", 2}, {"master", 4}, {"momentum", 4}, {"variance", 4}, {"gradient copy", 4}}}};
}

// Tells whether a run with the recipe's keys keeps as many bytes per parameter as the recipe; false without keys.
bool trains(const PrecisionRecipe& recipe) {
  if (recipe.keys.empty()) return false;
  std::istringstream words(recipe.keys);
  const std::vector<std::string> keys{std::istream_iterator<std::string>(words), {}};
  return spec::state_bytes(spec::parse_run_text("", recipe.name, keys)).total() == recipe.bytes().total();
}

PrecisionRecipe recipe_of(const spec::RunFile& run) {
  const spec::StateBytes bytes = spec::state_bytes(run);
  const double second = run.optimizer.kind == "adamw" ? 4 : 0;
  const double first = run.optimizer.kind == "sgd" && run.optimizer.momentum == 0 ? 0
                       : run.optimizer.momentum_precision == "bf16"               ? 2
                                                                                  : 4;
  // Bytes of what makes a 16-bit weight exact: 4 of fp32, or 2 of its lower half.
  const double exact = bytes.states - first - second;
  PrecisionRecipe out{.name = run.model.frozen == "none" ? "this run" : "this run, nothing frozen"};
  const std::pair<const char*, double> parts[] = {{"weight", bytes.weight},
                                                  {"gradient", bytes.gradient},
                                                  {exact == 2 ? "low half" : "master", exact},
                                                  {"momentum", first},
                                                  {"variance", second}};
  for (const auto& [name, size] : parts) {
    if (size > 0) out.parts.emplace_back(name, size);
  }
  return out;
}

void add_states(const spec::RunFile& run, PaperFormulas& out) {
  std::vector<PrecisionRecipe> recipes = known_recipes();
  recipes.insert(recipes.begin(), recipe_of(run));
  for (PrecisionRecipe& recipe : recipes) {
    if (!trains(recipe)) recipe.keys.clear();
    const spec::StateBytes bytes = recipe.bytes();
    StateRow row{.recipe = std::move(recipe), .whole = out.parameters * bytes.total()};
    for (int stage = 0; stage < 4; ++stage)
      row.of_rank[static_cast<size_t>(stage)] =
          spec::zero_state_bytes(out.parameters_of_rank, out.shards, stage, bytes);
    out.states.push_back(std::move(row));
  }
}

void add_traffic(spec::RunFile run, PaperFormulas& out) {
  const char* names[] = {"data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3"};
  for (int stage = 0; stage < 4; ++stage) {
    run.strategy.zero = stage;
    out.traffic.push_back({names[stage],
                           spec::hybrid_elements_sent(out.parameters_of_rank, out.shards, out.replicas, stage),
                           not_built(run)});
  }
  constexpr double kElement = 2;  // bytes of a 16-bit weight
  out.zero3_cross_host = kElement * spec::zero3_elements_across_hosts(out.parameters_of_rank);
  out.zero_plus_plus_cross_host = kElement * spec::zero_plus_plus_elements_across_hosts(out.parameters_of_rank);
}

// Returns what this version lacks to train with this recomputation; empty = it can.
std::string lacks(spec::RunFile run, RecomputeKind recompute) {
  run.strategy.recompute = recompute == RecomputeKind::kNone   ? "none"
                           : recompute == RecomputeKind::kFull ? "full"
                                                               : "selective";
  return not_built(run);
}

void add_layers(const spec::RunFile& run, const spec::Layout& layout, PaperFormulas& out) {
  const auto& model = run.model;
  out.layer = {.s = static_cast<double>(model.context) / layout.cp,
               .b = static_cast<double>(layout.micro_batch),
               .h = static_cast<double>(model.width),
               .a = static_cast<double>(model.heads)};
  for (const bool sequence_parallel : {false, true}) {
    if (sequence_parallel && layout.tp == 1) continue;
    for (const RecomputeKind recompute : {RecomputeKind::kNone, RecomputeKind::kSelective, RecomputeKind::kFull}) {
      out.layers.push_back({layout.tp, sequence_parallel, recompute,
                            spec::layer_activation_bytes(out.layer, layout.tp, sequence_parallel, recompute),
                            lacks(run, recompute)});
    }
  }
  const int64_t layers = std::max<int64_t>(1, (model.layers + layout.pp - 1) / layout.pp);  // of the largest stage
  const int64_t best = spec::sqrt_interval(layers);
  for (const int64_t every : {int64_t{1}, best, layers}) {
    if (!out.checkpoints.empty() && out.checkpoints.back().every == every) continue;
    const spec::RecomputeSegments held = spec::segments_every(layers, every);
    out.checkpoints.push_back(
        {every, held,
         static_cast<double>(held.kept) *
                 spec::layer_activation_bytes(out.layer, layout.tp, false, RecomputeKind::kFull) +
             static_cast<double>(held.layers_per_segment) * spec::layer_activation_bytes(out.layer, layout.tp)});
  }
  const spec::StepShape step{.batch = static_cast<double>(layout.batch),
                             .context = static_cast<double>(model.context),
                             .layers = static_cast<double>(model.layers),
                             .width = static_cast<double>(model.width),
                             .vocab = static_cast<double>(model.vocab)};
  out.full_recompute_flop_ratio = spec::full_recompute_step_flops(step) / spec::model_step_flops(step);
}

}  // namespace

spec::StateBytes PrecisionRecipe::bytes() const {
  spec::StateBytes out{0, 0, 0};
  for (const auto& [part, size] : parts)
    (part == "weight" ? out.weight : part == "gradient" ? out.gradient : out.states) += size;
  return out;
}

PaperFormulas paper_formulas_of(const spec::RunFile& run, const spec::Layout& layout, double parameters) {
  PaperFormulas out;
  out.parameters = parameters;
  out.parameters_of_rank = parameters / layout.tp / layout.pp;
  out.shards = layout.fsdp > 1 ? layout.fsdp : layout.dp;
  out.replicas = layout.fsdp > 1 ? layout.dp : 1;
  add_states(run, out);
  add_traffic(run, out);
  const auto& model = run.model;
  const bool gpt = model.kind == "gpt";
  if (gpt) {
    out.decoder_parameters = spec::decoder_parameters(
        static_cast<double>(model.vocab), static_cast<double>(model.width), static_cast<double>(model.layers),
        static_cast<double>(model.heads), static_cast<double>(model.head_width), static_cast<double>(model.ffn));
  }
  const bool as_counted = (gpt || model.kind == "bert") && model.ffn == 4 * model.width &&
                          model.kv_heads == model.heads && model.heads * model.head_width == model.width;
  if (as_counted) add_layers(run, layout, out);
  return out;
}

}  // namespace herd::planner
