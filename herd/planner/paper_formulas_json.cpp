#include "herd/planner/paper_formulas_internal.h"

namespace herd::planner {
namespace {

using Json = nlohmann::ordered_json;

Json states_json(const PaperFormulas& formulas) {
  Json out = Json::array();
  for (const StateRow& row : formulas.states) {
    Json parts = Json::object();
    for (const auto& [name, bytes] : row.recipe.parts) parts[name] = bytes;
    out.push_back({{"form", row.recipe.name},
                   {"parts", std::move(parts)},
                   {"bytes_per_parameter", row.recipe.bytes().total()},
                   {"model_bytes", row.whole},
                   {"rank_bytes_by_zero", row.of_rank},
                   {"keys", row.recipe.keys}});
  }
  return out;
}

Json layer_json(const PaperFormulas& formulas) {
  const spec::LayerShape& l = formulas.layer;
  Json modes = Json::array(), checkpoints = Json::array();
  for (const LayerRow& row : formulas.layers) {
    modes.push_back({{"tensor_parallel", row.tensor_parallel},
                     {"sequence_parallel", row.sequence_parallel},
                     {"recompute", name_of(row.recompute)},
                     {"bytes", row.bytes},
                     {"not_built", row.why_not_built}});
  }
  for (const CheckpointRow& row : formulas.checkpoints) {
    checkpoints.push_back({{"every", row.every},
                           {"kept", row.checkpoints.kept},
                           {"segment", row.checkpoints.layers_per_segment},
                           {"bytes", row.bytes}});
  }
  return {{"s", l.s},
          {"b", l.b},
          {"h", l.h},
          {"a", l.a},
          {"attention", attention_activation_bytes(l)},
          {"attention_core", attention_core_activation_bytes(l)},
          {"feed_forward", mlp_activation_bytes(l)},
          {"norms", norm_activation_bytes(l)},
          {"modes", std::move(modes)},
          {"checkpoints", std::move(checkpoints)},
          {"full_recompute_flops", formulas.full_recompute_flop_ratio}};
}

}  // namespace

Json paper_json(const PaperFormulas& formulas) {
  Json elements = Json::array();
  for (const TrafficRow& row : formulas.traffic) elements.push_back(row.elements);
  Json out = {{"model_states", states_json(formulas)},
              {"shards", formulas.shards},
              {"replicas", formulas.replicas},
              {"elements_sent_by_zero", std::move(elements)},
              {"cross_host_bytes",
               {{"zero3", formulas.zero3_cross_host}, {"zero_plus_plus", formulas.zero_plus_plus_cross_host}}}};
  if (formulas.decoder_parameters > 0) out["decoder_parameters"] = formulas.decoder_parameters;
  if (!formulas.layers.empty()) out["layer_activations"] = layer_json(formulas);
  return out;
}

}  // namespace herd::planner
