#include "herd/models/decoder.h"

#include <algorithm>
#include <map>

#include "herd/bridge/tensor_buffer.h"
#include "herd/models/decoder_parameters_internal.h"
#include "herd/nn/language_model_head.h"
#include "herd/nn/masked_head.h"
#include "herd/nn/token_embedding.h"
#include "herd/spec/build_model_table.h"

namespace herd::models {
namespace {

using nn::ParameterSpec;
using Shape = spec::RunFile::Model;

// Builds the part of a model that one rank holds, as the model table describes it.
class DecoderBuilder {
 public:
  DecoderBuilder(const Shape& shape, const spec::ModelTable& table, RankPlace place, at::Device device)
      : shape_(shape),
        table_(table),
        place_(place),
        device_(device),
        layers_{.shape = layer_shape(shape, table.recomputes_attention),
                .is_split = table.is_split(),
                .heads = {table.tp, place.tensor},
                .context_ranks = table.cp,
                .ring = table.ring},
        whole_specs_(decoder_parameters(shape, layers_.shape)) {
    if (layers_.shape.mixture) layers_.shape.mixture->ranks = table.ep;
  }

  Model build() {
    for (const spec::ParameterGroupShape& group : table_.groups) model_.groups.push_back(make_group(group));
    for (const spec::BlockShape& block : table_.blocks) {
      model_.blocks.push_back(make_block(block));
      model_.blocks.back()->set_layer(block.layer);
    }
    model_.context = shape_.context;
    model_.routers = layers_.routers;
    return std::move(model_);
  }

 private:
  std::shared_ptr<nn::ParameterGroup> make_group(const spec::ParameterGroupShape& group) const {
    std::vector<ParameterSpec> specs;
    bool is_cut = false;
    for (const spec::ParameterShape& parameter : group.parameters) {
      ParameterSpec spec = whole_specs_.at(parameter.name);
      std::vector<nn::Span> spans;
      if (table_.is_split()) {
        for (const spec::IndexSpan& span : cut_spans(parameter, table_.tp, place_.tensor))
          spans.push_back({span.begin, span.end});
      }
      if (group.of_experts) {
        const int64_t held = shape_.experts / table_.ep, first = held * place_.experts;
        specs.push_back(nn::cut(std::move(spec), 0, {{first, first + held}}));
        continue;
      }
      is_cut = is_cut || !spans.empty();
      specs.push_back(spans.empty() ? spec : nn::cut(std::move(spec), parameter.cut_dim, std::move(spans)));
    }
    return std::make_shared<nn::ParameterGroup>(
        group.name, std::move(specs),
        nn::GroupOptions{.dtype = scalar_type_of(table_.compute_dtype),
                         .gradient_dtype = scalar_type_of(table_.gradient_dtype),
                         .device = device_,
                         .frozen = group.frozen,
                         .place = group.of_experts ? place_.experts
                                  : is_cut         ? place_.tensor / group.max_copies()
                                                   : 0});
  }

  std::shared_ptr<nn::Block> make_block(const spec::BlockShape& block) {
    nn::GroupList groups;
    for (const int g : block.groups) groups.push_back(model_.groups[static_cast<size_t>(g)]);
    const auto parameter = [&](const std::string& name) -> nn::Parameter& { return nn::find(groups, name); };
    const auto has = [&](const char* part) { return std::ranges::find(block.parts, part) != block.parts.end(); };
    const auto norm = [&](const std::string& name) {
      return std::make_shared<nn::Norm>(block.name, groups, layers_.shape.norm, parameter(name + ".weight"),
                                        layers_.shape.norm.has_bias() ? &parameter(name + ".bias") : nullptr);
    };
    const auto norm_f = [&] { return norm("ln_f"); };
    if (has("masked_head"))
      return std::make_shared<nn::MaskedHead>(
          groups,
          nn::MaskedHeadParameters{parameter("masked.dense.weight"), parameter("masked.dense.bias"),
                                   parameter(shape_.tie_embeddings ? "wte.weight" : "masked.weight"),
                                   parameter("masked.bias")},
          norm("masked.ln"), table_.masked_tokens);
    const bool has_positions = !layers_.shape.rotary, adds_positions = has("positions");
    if (has("embedding") && shape_.is_bert())
      return std::make_shared<nn::TokenEmbedding>(groups, parameter("wte.weight"), &parameter("wpe.weight"),
                                                  shape_.dropout, &parameter("segments.weight"), norm("ln_embedding"));
    if (has("embedding"))
      return std::make_shared<nn::TokenEmbedding>(groups, parameter("wte.weight"),
                                                  adds_positions ? &parameter("wpe.weight") : nullptr,
                                                  adds_positions || !has_positions ? shape_.dropout : 0);
    if (adds_positions) return std::make_shared<nn::AddPositions>(groups, parameter("wpe.weight"), shape_.dropout);
    if (has("head"))
      return std::make_shared<nn::LanguageModelHead>(groups, has("norm_f") ? norm_f() : nullptr,
                                                     parameter(shape_.tie_embeddings ? "wte.weight" : "head.weight"),
                                                     nn::RouterLossFactors{shape_.balance_loss, shape_.z_loss});
    if (has("norm_f")) return norm_f();
    return layers_.make(block.name, "h." + std::to_string(block.layer - 1) + ".", block.parts, groups);
  }

  const Shape& shape_;
  const spec::ModelTable& table_;
  RankPlace place_;
  at::Device device_;
  nn::LayerParts layers_;
  const std::map<std::string, ParameterSpec> whole_specs_;
  Model model_;
};

}  // namespace

Model make_model(const Shape& shape, const spec::ModelTable& table, RankPlace place, at::Device device) {
  return DecoderBuilder(shape, table, place, device).build();
}

Model make_model(const Shape& shape) {
  decoder_parameters(shape, layer_shape(shape, false));  // throws for shapes that can't be
  spec::RunFile run;
  run.model = shape;
  if (shape.is_rotary()) run.model.norm = "rmsnorm";
  return make_model(run.model, spec::model_table(run, 1), RankPlace{});
}

}  // namespace herd::models
