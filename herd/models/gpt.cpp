#include "herd/models/gpt.h"

#include "herd/base/error.h"
#include "herd/nn/language_model_head.h"
#include "herd/nn/token_embedding.h"
#include "herd/nn/transformer_block.h"

namespace herd::models {
namespace {

using nn::Init;
using nn::NormKind;
using nn::ParameterSpec;
using Shape = spec::RunFile::Model;

constexpr double kDeviation = 0.02;

NormKind norm_kind(const std::string& name) {
  if (name == "layernorm") return NormKind::kLayerNorm;
  if (name == "rmsnorm") return NormKind::kRmsNorm;
  throw Error(Code::kBadConfig, "model.norm = \"" + name + "\" is unknown\n  fix: \"layernorm\" or \"rmsnorm\"");
}

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
  std::shared_ptr<nn::ParameterGroup> add_group(const std::string& name, std::vector<ParameterSpec> specs) {
    model_.groups.push_back(
        std::make_shared<nn::ParameterGroup>(name, std::move(specs), options_.dtype, options_.device));
    return model_.groups.back();
  }

  void add_embedding() {
    std::vector<ParameterSpec> tokens = {{"wte.weight", {shape_.vocab, shape_.width}, true, Init::kNormal, kDeviation}};
    const ParameterSpec positions = {"wpe.weight", {shape_.context, shape_.width}, false, Init::kNormal, kDeviation};
    std::vector<std::shared_ptr<nn::ParameterGroup>> groups;
    if (shape_.tie_embeddings) {
      groups = {add_group("wte", std::move(tokens)), add_group("wpe", {positions})};
    } else {
      tokens.push_back(positions);
      groups = {add_group("embedding", std::move(tokens))};
    }
    nn::Parameter& wte = groups.front()->find("wte.weight");
    model_.blocks.push_back(
        std::make_shared<nn::TokenEmbedding>(groups, wte, groups.back()->find("wpe.weight"), shape_.dropout));
  }

  void add_transformer(const std::string& name) {
    const nn::TransformerShape block{.width = shape_.width,
                                     .heads = shape_.heads,
                                     .ffn = shape_.ffn == 0 ? 4 * shape_.width : shape_.ffn,
                                     .norm = norm_,
                                     .dropout = shape_.dropout,
                                     .recompute_attention = options_.recompute_attention};
    const auto group = add_group(name, nn::transformer_parameters(name + ".", block, shape_.layers));
    model_.blocks.push_back(std::make_shared<nn::TransformerBlock>(name, group, name + ".", block));
  }

  void add_head() {
    std::vector<ParameterSpec> specs = {{"ln_f.weight", {shape_.width}, false, Init::kOnes}};
    if (norm_ == NormKind::kLayerNorm) specs.push_back({"ln_f.bias", {shape_.width}});
    std::vector<std::shared_ptr<nn::ParameterGroup>> groups;
    if (shape_.tie_embeddings) {
      const auto tied = model_.groups.front();
      groups = {add_group("ln_f", std::move(specs)), tied};
    } else {
      specs.push_back({"head.weight", {shape_.vocab, shape_.width}, true, Init::kNormal, kDeviation});
      groups = {add_group("head", std::move(specs))};
    }
    nn::ParameterGroup& own = *groups.front();
    nn::Parameter* bias = norm_ == NormKind::kLayerNorm ? &own.find("ln_f.bias") : nullptr;
    nn::Parameter& projection = groups.back()->find(shape_.tie_embeddings ? "wte.weight" : "head.weight");
    model_.blocks.push_back(
        std::make_shared<nn::LanguageModelHead>(groups, norm_, own.find("ln_f.weight"), bias, projection));
  }

  const Shape& shape_;
  ModelOptions options_;
  NormKind norm_;
  Model model_;
};

}  // namespace

Model make_gpt(const Shape& shape, const ModelOptions& options) { return GptBuilder(shape, options).build(); }

Model make_model(const Shape& shape, const ModelOptions& options) {
  if (shape.kind == "gpt") return make_gpt(shape, options);
  throw Error(Code::kBadConfig,
              "model.kind = \"" + shape.kind + "\" is not in this version\n  fix: model.kind = \"gpt\"");
}

}  // namespace herd::models
