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

// Says whether a run with the recipe's keys keeps as many bytes per parameter as the recipe; false without keys.
bool keys_match_recipe(const PrecisionRecipe& recipe) {
  if (recipe.keys.empty()) return false;
  std::istringstream words(recipe.keys);
  const std::vector<std::string> keys{std::istream_iterator<std::string>(words), {}};
  return spec::state_bytes(spec::parse_run_text("", recipe.name, keys)).total() == recipe.bytes().total();
}

// Returns how many bytes per parameter this run keeps of each part.
PrecisionRecipe recipe_of(const spec::RunFile& run) {
  const spec::StateBytes bytes = spec::state_bytes(run);
  const double variance = run.optimizer.kind == "adamw" ? 4 : 0;
  const double momentum = run.optimizer.kind == "sgd" && run.optimizer.momentum == 0 ? 0
                          : run.optimizer.momentum_precision == "bf16"               ? 2
                                                                                     : 4;
  // A 16-bit weight has an fp32 master of 4 bytes, or the lower half of the fp32 number, 2 bytes.
  const double master = bytes.states - momentum - variance;
  PrecisionRecipe out{.name = run.model.frozen == "none" ? "this run" : "this run, nothing frozen"};
  const std::pair<const char*, double> parts[] = {{"weight", bytes.weight},
                                                  {"gradient", bytes.gradient},
                                                  {master == 2 ? "low half" : "master", master},
                                                  {"momentum", momentum},
                                                  {"variance", variance}};
  for (const auto& [name, size] : parts) {
    if (size > 0) out.parts.emplace_back(name, size);
  }
  return out;
}

// Adds the bytes of model states of each recipe, on one rank for each ZeRO stage.
void add_states(const spec::RunFile& run, PaperFormulas& out) {
  std::vector<PrecisionRecipe> recipes = known_recipes();
  recipes.insert(recipes.begin(), recipe_of(run));
  for (PrecisionRecipe& recipe : recipes) {
    if (!keys_match_recipe(recipe)) recipe.keys.clear();
    const spec::StateBytes bytes = recipe.bytes();
    StateRow row{.recipe = std::move(recipe), .whole = out.parameters * bytes.total()};
    for (int stage = 0; stage < 4; ++stage)
      row.of_rank[static_cast<size_t>(stage)] =
          spec::zero_state_bytes(out.parameters_of_rank, out.shards, stage, bytes);
    out.states.push_back(std::move(row));
  }
}

// Adds the elements that a rank sends for each ZeRO stage.
void add_traffic(spec::RunFile run, PaperFormulas& out) {
  const char* names[] = {"data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3"};
  for (int stage = 0; stage < 4; ++stage) {
    run.strategy.zero = stage;
    out.traffic.push_back({names[stage],
                           spec::hybrid_elements_sent(out.parameters_of_rank, out.shards, out.replicas, stage),
                           not_built(run)});
  }
  constexpr double kWeightBytes = 2;  // bytes of one 16-bit weight
  out.zero3_cross_host = kWeightBytes * spec::zero3_elements_across_hosts(out.parameters_of_rank);
  out.zero_plus_plus_cross_host = kWeightBytes * spec::zero_plus_plus_elements_across_hosts(out.parameters_of_rank);
}

// Returns why this version can't train with this recomputation; empty = it can.
std::string why_recompute_not_built(spec::RunFile run, RecomputeKind recompute) {
  run.strategy.recompute = recompute == RecomputeKind::kNone   ? "none"
                           : recompute == RecomputeKind::kFull ? "full"
                                                               : "selective";
  return not_built(run);
}

// Adds the activations of one layer for each technique, and those of a rank for each distance of checkpoints.
void add_layers_and_checkpoints(const spec::RunFile& run, const spec::Layout& layout, PaperFormulas& out) {
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
                            why_recompute_not_built(run, recompute)});
    }
  }
  // The largest stage has this many layers.
  const int64_t layers = std::max<int64_t>(1, (model.layers + layout.pp - 1) / layout.pp);
  const int64_t best = spec::sqrt_interval(layers);
  for (const int64_t every : {int64_t{1}, best, layers}) {
    if (!out.checkpoints.empty() && out.checkpoints.back().every == every) continue;
    const spec::RecomputeSegments segments = spec::segments_every(layers, every);
    out.checkpoints.push_back(
        {every, segments,
         static_cast<double>(segments.kept) *
                 spec::layer_activation_bytes(out.layer, layout.tp, false, RecomputeKind::kFull) +
             static_cast<double>(segments.layers_per_segment) * spec::layer_activation_bytes(out.layer, layout.tp)});
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
  // The formulas count layers with 4 h feed-forward units, and with as many key heads as query heads.
  const bool formulas_apply = (gpt || model.kind == "bert") && model.ffn == 4 * model.width &&
                              model.kv_heads == model.heads && model.heads * model.head_width == model.width;
  if (formulas_apply) add_layers_and_checkpoints(run, layout, out);
  return out;
}

}  // namespace herd::planner
