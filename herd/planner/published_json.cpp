#include "herd/planner/published_internal.h"

namespace herd::planner {
namespace {

using Json = nlohmann::ordered_json;

Json states_json(const Published& published) {
  Json out = Json::array();
  for (const StateRow& row : published.states) {
    Json parts = Json::object();
    for (const auto& [name, bytes] : row.form.parts) parts[name] = bytes;
    out.push_back({{"form", row.form.name},
                   {"parts", std::move(parts)},
                   {"bytes_per_parameter", row.form.bytes().total()},
                   {"model_bytes", row.whole},
                   {"rank_bytes_by_zero", row.of_rank},
                   {"keys", row.form.keys}});
  }
  return out;
}

Json layer_json(const Published& published) {
  const spec::LayerShape& l = published.layer;
  Json modes = Json::array(), checkpoints = Json::array();
  for (const LayerRow& row : published.layers) {
    modes.push_back({{"tensor_parallel", row.tensor_parallel},
                     {"sequence_parallel", row.sequence_parallel},
                     {"recompute", name_of(row.recompute)},
                     {"bytes", row.bytes},
                     {"not_built", row.not_built}});
  }
  for (const CheckpointRow& row : published.checkpoints) {
    checkpoints.push_back(
        {{"every", row.every}, {"kept", row.layers.kept}, {"segment", row.layers.segment}, {"bytes", row.bytes}});
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
          {"full_recompute_flops", published.full_recompute}};
}

}  // namespace

Json published_json(const Published& published) {
  Json elements = Json::array();
  for (const TrafficRow& row : published.traffic) elements.push_back(row.elements);
  Json out = {{"model_states", states_json(published)},
              {"shards", published.shards},
              {"replicas", published.replicas},
              {"elements_sent_by_zero", std::move(elements)},
              {"cross_host_bytes",
               {{"zero3", published.zero3_cross_host}, {"zero_plus_plus", published.zero_plus_plus_cross_host}}}};
  if (published.decoder_parameters > 0) out["decoder_parameters"] = published.decoder_parameters;
  if (!published.layers.empty()) out["layer_activations"] = layer_json(published);
  return out;
}

}  // namespace herd::planner
