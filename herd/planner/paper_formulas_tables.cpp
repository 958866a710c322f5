#include <cstdio>

#include "herd/base/units.h"
#include "herd/planner/paper_formulas_internal.h"

namespace herd::planner {
namespace {

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string gigabytes(double bytes) { return short_number(bytes / 1e9); }

// Returns "2 + 2 + 4 + 4 + 4": the bytes of each part times `scale`.
std::string sum_of(const PrecisionRecipe& recipe, double scale) {
  std::string out;
  for (const auto& [name, bytes] : recipe.parts) out += (out.empty() ? "" : " + ") + short_number(bytes * scale);
  return out;
}

draw::Table state_table(const PaperFormulas& formulas) {
  draw::Table table{{{"GB of 1e9 bytes"},
                     {"bytes a parameter"},
                     {"the model"},
                     {"together", true},
                     {"a rank", true},
                     {"ZeRO-1", true},
                     {"ZeRO-2", true},
                     {"ZeRO-3", true},
                     {"herd"}},
                    {}};
  for (const StateRow& row : formulas.states) {
    const bool own = &row == &formulas.states[0];
    table.rows.push_back({row.recipe.name, sum_of(row.recipe, 1) + " = " + short_number(row.recipe.bytes().total()),
                          sum_of(row.recipe, formulas.parameters / 1e9), gigabytes(row.whole),
                          gigabytes(row.of_rank[0]), gigabytes(row.of_rank[1]), gigabytes(row.of_rank[2]),
                          gigabytes(row.of_rank[3]),
                          own                       ? "as it is"
                          : row.recipe.keys.empty() ? in_herd(false)
                                                    : row.recipe.keys});
  }
  return table;
}

draw::Table layer_table(const PaperFormulas& formulas) {
  draw::Table table{{{"tensor parallel"}, {"sequence parallel"}, {"recompute"}, {"a layer", true}, {"herd"}}, {}};
  for (const LayerRow& row : formulas.layers)
    table.rows.push_back({std::to_string(row.tensor_parallel), row.sequence_parallel ? "yes" : "no",
                          name_of(row.recompute), format_bytes(row.bytes), in_herd(row.why_not_built.empty())});
  return table;
}

draw::Table term_table(const spec::LayerShape& layer) {
  const std::pair<const char*, double> terms[] = {
      {"attention  11sbh + 5as^2b", attention_activation_bytes(layer)},
      {"  of it before its output projection  8sbh + 5as^2b", attention_core_activation_bytes(layer)},
      {"feed-forward  19sbh", mlp_activation_bytes(layer)},
      {"two norms  4sbh", norm_activation_bytes(layer)}};
  draw::Table table{{{"on one rank"}, {"bytes", true}}, {}};
  for (const auto& [name, bytes] : terms) table.rows.push_back({name, format_bytes(bytes)});
  return table;
}

draw::Table checkpoint_table(const PaperFormulas& formulas) {
  draw::Table table{
      {{"every"}, {"inputs kept", true}, {"layers computed again", true}, {"layers together", true}, {"bytes", true}},
      {}};
  for (const CheckpointRow& row : formulas.checkpoints)
    table.rows.push_back({std::to_string(row.every) + (row.every == 1 ? " layer" : " layers"),
                          std::to_string(row.checkpoints.kept), std::to_string(row.checkpoints.layers_per_segment),
                          std::to_string(row.checkpoints.kept + row.checkpoints.layers_per_segment),
                          format_bytes(row.bytes)});
  return table;
}

draw::Table traffic_table(const PaperFormulas& formulas) {
  draw::Table table{{{"a rank and step"}, {"elements", true}, {"herd"}}, {}};
  for (const TrafficRow& row : formulas.traffic)
    table.rows.push_back({row.name, format_count(row.elements), in_herd(row.why_not_built.empty())});
  return table;
}

draw::Table cross_host_table(const PaperFormulas& formulas) {
  return {{{"across hosts, M 16-bit weights"}, {"of M", true}, {"bytes", true}, {"herd"}},
          {{"ZeRO-3", "3", format_bytes(formulas.zero3_cross_host), in_herd(formulas.traffic[3].why_not_built.empty())},
           {"ZeRO++", "0.75", format_bytes(formulas.zero_plus_plus_cross_host), in_herd(true)}}};
}

}  // namespace

const char* name_of(spec::RecomputeKind recompute) {
  return recompute == spec::RecomputeKind::kNone   ? "none"
         : recompute == spec::RecomputeKind::kFull ? "full"
                                                   : "selective";
}

std::vector<PaperTable> paper_tables(const PaperFormulas& p) {
  const std::string ranks = std::to_string(p.shards);
  std::vector<PaperTable> out;
  out.push_back({"model states, ZeRO over " + ranks + (p.shards == 1 ? " rank" : " ranks"), state_table(p)});
  if (!p.layers.empty()) {
    const std::string shape = short_number(p.layer.b) + " x " + short_number(p.layer.s) + " tokens";
    out.push_back({"activations of one layer in 16 bit, " + shape, layer_table(p)});
    out.push_back({"their terms", term_table(p.layer)});
    char arithmetic[64];
    std::snprintf(arithmetic, sizeof arithmetic, "full recompute takes %.0f %% more arithmetic",
                  100 * (p.full_recompute_flop_ratio - 1));
    out.push_back({"recompute of every K layers; " + std::string(arithmetic), checkpoint_table(p)});
  }
  if (p.shards * p.replicas == 1) return out;
  out.push_back({"data-parallel traffic", traffic_table(p)});
  out.push_back({"between hosts", cross_host_table(p)});
  return out;
}

}  // namespace herd::planner
