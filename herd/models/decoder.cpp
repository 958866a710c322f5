#include "herd/models/decoder.h"

#include "herd/bridge/tensor_buffer.h"
#include "herd/models/decoder_parameters_internal.h"
#include "herd/nn/context_parts.h"
#include "herd/nn/language_model_head.h"
#include "herd/nn/token_embedding.h"
#include "herd/nn/transformer_block.h"
#include "herd/spec/frozen.h"

namespace herd::models {
namespace {

using nn::ParameterSpec;
using Shape = spec::RunFile::Model;
using Groups = std::vector<std::shared_ptr<nn::ParameterGroup>>;

// Builds a model on one rank: adds blocks and groups in the order of the chain.
class DecoderBuilder {
 public:
  DecoderBuilder(const Shape& shape, const ModelOptions& options)
      : shape_(shape), options_(options), layer_(layer_shape(shape, options.recompute_attention)) {
    if (layer_.mixture) layer_.mixture->ranks = options.expert_ranks;
  }

  Model build() {
    model_.context = shape_.context;
    add_embedding();
    for (int64_t layer = 0; layer < shape_.layers; ++layer) add_transformer("h." + std::to_string(layer));
    add_head();
    return std::move(model_);
  }

 private:
  // Adds one group; two where only some of its parameters are frozen, the trained ones first; none without parameters.
  // spec's freeze() splits groups in the same way.
  Groups add_group(const std::string& name, const std::vector<ParameterSpec>& specs, int place = 0) {
    std::vector<ParameterSpec> trained, frozen;
    for (const ParameterSpec& spec : specs)
      (spec::is_frozen(shape_.frozen, spec.name) ? frozen : trained).push_back(spec);
    const std::string frozen_name = trained.empty() ? name : spec::frozen_group_name(name);
    Groups added;
    nn::GroupOptions group{
        .dtype = options_.dtype, .gradient_dtype = options_.gradient_dtype, .device = options_.device, .place = place};
    if (!trained.empty()) added.push_back(std::make_shared<nn::ParameterGroup>(name, std::move(trained), group));
    group.frozen = true;
    if (!frozen.empty()) added.push_back(std::make_shared<nn::ParameterGroup>(frozen_name, std::move(frozen), group));
    append(model_.groups, added);
    return added;
  }
  static void append(Groups& to, const Groups& more) { to.insert(to.end(), more.begin(), more.end()); }

  void add_embedding() {
    std::vector<ParameterSpec> positions;
    if (!layer_.rotary) positions.push_back(position_embedding(shape_));
    Groups groups;
    if (shape_.tie_embeddings) {
      groups = tied_ = add_group("wte", {token_embedding(shape_)});
      append(groups, add_group("wpe", positions));
    } else {
      positions.insert(positions.begin(), token_embedding(shape_));
      groups = add_group("embedding", positions);
    }
    model_.blocks.push_back(std::make_shared<nn::TokenEmbedding>(
        groups, nn::find(groups, "wte.weight"), layer_.rotary ? nullptr : &nn::find(groups, "wpe.weight"),
        shape_.dropout));
  }

  void add_transformer(const std::string& name) {
    Groups groups = add_group(name, nn::transformer_parameters(name + ".", layer_, shape_.layers));
    if (layer_.mixture) append(groups, add_group(name + ".experts", own_experts(name + "."), options_.expert_place));
    if (options_.context_ranks == 1) {
      const auto block = std::make_shared<nn::TransformerBlock>(name, groups, name + ".", layer_);
      if (block->router_state()) model_.routers.push_back(block->router_state());
      model_.blocks.push_back(block);
      return;
    }
    const int exchanging = options_.ring ? 1 : options_.context_ranks;
    model_.blocks.push_back(std::make_shared<nn::TokenProjection>(name, groups, layer_, exchanging));
    if (options_.ring)
      model_.blocks.push_back(std::make_shared<nn::RingAttention>(name, layer_));
    else
      model_.blocks.push_back(std::make_shared<nn::HeadAttention>(name, layer_, exchanging));
    model_.blocks.push_back(std::make_shared<nn::LayerOutput>(name, groups, layer_));
  }

  // Returns the parameters of the experts that this rank holds.
  std::vector<ParameterSpec> own_experts(const std::string& prefix) const {
    std::vector<ParameterSpec> specs = nn::expert_parameters(prefix, layer_, shape_.layers);
    if (options_.expert_ranks == 1) return specs;
    const int64_t held = shape_.experts / options_.expert_ranks, first = held * options_.expert_place;
    for (ParameterSpec& spec : specs) spec = nn::cut(std::move(spec), 0, {{first, first + held}});
    return specs;
  }

  void add_head() {
    std::vector<ParameterSpec> specs = final_norm(layer_);
    Groups groups;
    if (shape_.tie_embeddings) {
      groups = add_group("ln_f", specs);
      append(groups, tied_);
    } else {
      specs.push_back(output_projection(shape_));
      groups = add_group("head", specs);
    }
    nn::Parameter* bias = layer_.norm.has_bias() ? &nn::find(groups, "ln_f.bias") : nullptr;
    nn::Parameter& projection = nn::find(groups, shape_.tie_embeddings ? "wte.weight" : "head.weight");
    model_.blocks.push_back(
        std::make_shared<nn::LanguageModelHead>(groups, layer_.norm, nn::find(groups, "ln_f.weight"), bias, projection,
                                                nn::RouterLossFactors{shape_.balance_loss, shape_.z_loss}));
  }

  const Shape& shape_;
  ModelOptions options_;
  nn::TransformerShape layer_;
  Groups tied_ = {};  // group that the head shares with the embedding
  Model model_;
};

}  // namespace

ModelOptions options_of(const spec::ModelTable& table) {
  return {.dtype = scalar_type_of(table.compute_dtype),
          .gradient_dtype = scalar_type_of(table.gradient_dtype),
          .recompute_attention = table.recomputes_attention,
          .ring = table.ring,
          .context_ranks = table.cp,
          .expert_ranks = table.ep};
}

Model make_model(const Shape& shape, const ModelOptions& options) { return DecoderBuilder(shape, options).build(); }

Model make_model(const Shape& shape, const spec::ModelTable& table, RankPlace place, at::Device device) {
  if (table.is_split()) return make_split_decoder(shape, table, place, device);
  ModelOptions options = options_of(table);
  options.device = device;
  options.expert_place = place.experts;
  Model model = make_model(shape, options);
  for (size_t b = 0; b < model.blocks.size(); ++b) model.blocks[b]->set_layer(table.blocks.at(b).layer);
  return model;
}

}  // namespace herd::models
