#include "herd/models/gpt.h"

#include "herd/base/error.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/models/gpt_parameters_internal.h"
#include "herd/nn/language_model_head.h"
#include "herd/nn/token_embedding.h"
#include "herd/nn/transformer_block.h"
#include "herd/spec/frozen.h"

namespace herd::models {
namespace {

using nn::Init;
using nn::NormKind;
using nn::ParameterSpec;
using Shape = spec::RunFile::Model;
using Groups = std::vector<std::shared_ptr<nn::ParameterGroup>>;

// Adds blocks and groups to a model, in the order of the chain.
class GptBuilder {
 public:
  GptBuilder(const Shape& shape, const ModelOptions& options)
      : shape_(shape), options_(options), norm_(norm_kind(shape.norm)) {}

  Model build() {
    model_.context = shape_.context;
    add_embedding();
    for (int64_t layer = 0; layer < shape_.layers; ++layer) add_transformer("h." + std::to_string(layer));
    add_head();
    return std::move(model_);
  }

 private:
  // One group, or two where some of its parameters are frozen: what is trained first, as spec's freeze() has them.
  Groups add_group(const std::string& name, const std::vector<ParameterSpec>& specs) {
    std::vector<ParameterSpec> trained, frozen;
    for (const ParameterSpec& spec : specs)
      (spec::is_frozen(shape_.frozen, spec.name) ? frozen : trained).push_back(spec);
    const std::string frozen_name = trained.empty() ? name : spec::frozen_group_name(name);
    Groups added;
    nn::GroupOptions group{options_.dtype, options_.gradient_dtype, options_.device};
    if (!trained.empty()) added.push_back(std::make_shared<nn::ParameterGroup>(name, std::move(trained), group));
    group.frozen = true;
    if (!frozen.empty()) added.push_back(std::make_shared<nn::ParameterGroup>(frozen_name, std::move(frozen), group));
    append(model_.groups, added);
    return added;
  }
  static void append(Groups& to, const Groups& more) { to.insert(to.end(), more.begin(), more.end()); }

  void add_embedding() {
    const ParameterSpec tokens = token_embedding(shape_), positions = position_embedding(shape_);
    Groups groups;
    if (shape_.tie_embeddings) {
      groups = tied_ = add_group("wte", {tokens});
      append(groups, add_group("wpe", {positions}));
    } else {
      groups = add_group("embedding", {tokens, positions});
    }
    model_.blocks.push_back(std::make_shared<nn::TokenEmbedding>(groups, nn::find(groups, "wte.weight"),
                                                                 nn::find(groups, "wpe.weight"), shape_.dropout));
  }

  void add_transformer(const std::string& name) {
    const nn::TransformerShape block = layer_shape(shape_, options_.recompute_attention);
    const Groups groups = add_group(name, nn::transformer_parameters(name + ".", block, shape_.layers));
    model_.blocks.push_back(std::make_shared<nn::TransformerBlock>(name, groups, name + ".", block));
  }

  void add_head() {
    std::vector<ParameterSpec> specs = final_norm(shape_);
    Groups groups;
    if (shape_.tie_embeddings) {
      groups = add_group("ln_f", specs);
      append(groups, tied_);
    } else {
      specs.push_back(output_projection(shape_));
      groups = add_group("head", specs);
    }
    nn::Parameter* bias = norm_ == NormKind::kLayerNorm ? &nn::find(groups, "ln_f.bias") : nullptr;
    nn::Parameter& projection = nn::find(groups, shape_.tie_embeddings ? "wte.weight" : "head.weight");
    model_.blocks.push_back(
        std::make_shared<nn::LanguageModelHead>(groups, norm_, nn::find(groups, "ln_f.weight"), bias, projection));
  }

  const Shape& shape_;
  ModelOptions options_;
  NormKind norm_;
  Groups tied_ = {};  // what the head shares with the embedding
  Model model_;
};

}  // namespace

NormKind norm_kind(const std::string& name) {
  if (name == "layernorm") return NormKind::kLayerNorm;
  if (name == "rmsnorm") return NormKind::kRmsNorm;
  throw Error(Code::kBadConfig, "model.norm = \"" + name + "\" is unknown\n  fix: \"layernorm\" or \"rmsnorm\"");
}

nn::TransformerShape layer_shape(const Shape& shape, bool recompute_attention) {
  return {.width = shape.width,
          .heads = shape.heads,
          .ffn = shape.ffn == 0 ? 4 * shape.width : shape.ffn,
          .norm = norm_kind(shape.norm),
          .dropout = shape.dropout,
          .recompute_attention = recompute_attention};
}

ParameterSpec token_embedding(const Shape& shape) {
  return {"wte.weight", {shape.vocab, shape.width}, true, Init::kNormal, kDeviation};
}
ParameterSpec position_embedding(const Shape& shape) {
  return {"wpe.weight", {shape.context, shape.width}, false, Init::kNormal, kDeviation};
}
ParameterSpec output_projection(const Shape& shape) {
  return {"head.weight", {shape.vocab, shape.width}, true, Init::kNormal, kDeviation};
}
std::vector<ParameterSpec> final_norm(const Shape& shape) {
  std::vector<ParameterSpec> specs = {{"ln_f.weight", {shape.width}, false, Init::kOnes}};
  if (norm_kind(shape.norm) == NormKind::kLayerNorm) specs.push_back({"ln_f.bias", {shape.width}});
  return specs;
}

ModelOptions options_of(const spec::ModelTable& table) {
  return {.dtype = scalar_type_of(table.compute),
          .gradient_dtype = scalar_type_of(table.gradient),
          .recompute_attention = table.recomputes_attention};
}

Model make_gpt(const Shape& shape, const ModelOptions& options) { return GptBuilder(shape, options).build(); }

Model make_model(const Shape& shape, const ModelOptions& options) {
  if (shape.kind == "gpt") return make_gpt(shape, options);
  throw Error(Code::kBadConfig,
              "model.kind = \"" + shape.kind + "\" is not in this version\n  fix: model.kind = \"gpt\"");
}

Model make_model(const Shape& shape, const spec::ModelTable& table, int place) {
  return table.is_split() ? make_split_gpt(shape, table, place) : make_model(shape, options_of(table));
}

}  // namespace herd::models
