#include <map>

#include "herd/base/check.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/models/decoder.h"
#include "herd/models/decoder_parameters_internal.h"
#include "herd/nn/context_parts.h"
#include "herd/nn/layer_parts.h"

namespace herd::models {
namespace {

using nn::GroupList;
using nn::Parameter;
using nn::ParameterSpec;
using Shape = spec::RunFile::Model;

// Builds the part of a tensor parallel model that one rank holds, as the model table describes it.
class SplitDecoderBuilder {
 public:
  SplitDecoderBuilder(const Shape& shape, const spec::ModelTable& table, RankPlace place, at::Device device)
      : shape_(shape),
        table_(table),
        place_(place.tensor),
        expert_place_(place.experts),
        device_(device),
        layer_(layer_shape(shape, table.recomputes_attention)) {
    if (layer_.mixture) layer_.mixture->ranks = table.ep;
  }

  Model build() {
    describe_parameters();
    for (const spec::ParameterGroupShape& group : table_.groups) model_.groups.push_back(make_group(group));
    for (const spec::BlockShape& block : table_.blocks) {
      model_.blocks.push_back(make_block(block));
      model_.blocks.back()->set_layer(block.layer);
    }
    model_.context = shape_.context;
    return std::move(model_);
  }

 private:
  // Lists every parameter of the whole model by name.
  void describe_parameters() {
    const auto add = [&](const std::vector<ParameterSpec>& specs) {
      for (const ParameterSpec& spec : specs) whole_specs_.emplace(spec.name, spec);
    };
    add({token_embedding(shape_), position_embedding(shape_), output_projection(shape_)});
    add(final_norm(layer_));
    for (int64_t l = 0; l < shape_.layers; ++l) {
      const std::string prefix = "h." + std::to_string(l) + ".";
      add(nn::transformer_parameters(prefix, layer_, shape_.layers));
      if (layer_.mixture) add(nn::expert_parameters(prefix, layer_, shape_.layers));
    }
  }

  std::shared_ptr<nn::ParameterGroup> make_group(const spec::ParameterGroupShape& group) const {
    std::vector<ParameterSpec> specs;
    bool is_cut = false;
    const int part = place_ / group.max_copies();
    for (const spec::ParameterShape& parameter : group.parameters) {
      ParameterSpec spec = whole_specs_.at(parameter.name);
      std::vector<nn::Span> spans;
      for (const spec::IndexSpan& span : cut_spans(parameter, table_.tp, place_))
        spans.push_back({span.begin, span.end});
      if (group.of_experts) {
        const int64_t held = shape_.experts / table_.ep, first = held * expert_place_;
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
                         .place = group.of_experts ? expert_place_
                                  : is_cut         ? part
                                                   : 0});
  }

  std::shared_ptr<nn::Block> make_block(const spec::BlockShape& block) {
    GroupList groups;
    for (const int g : block.groups) groups.push_back(model_.groups[static_cast<size_t>(g)]);
    const auto parameter = [&](const std::string& name) -> Parameter& { return nn::find(groups, name); };
    const auto parameter_if = [&](bool exists, const std::string& name) { return exists ? &parameter(name) : nullptr; };
    const auto norm = [&](const std::string& name) {
      return std::make_shared<nn::Norm>(block.name, groups, layer_.norm, parameter(name + ".weight"),
                                        parameter_if(layer_.norm.has_bias(), name + ".bias"));
    };
    if (block.name == "embedding")
      return std::make_shared<nn::CutEmbedding>(groups, parameter("wte.weight"), layer_.rotary ? shape_.dropout : 0);
    if (block.name == "positions")
      return std::make_shared<nn::AddPositions>(groups, parameter("wpe.weight"), shape_.dropout);
    if (block.name == "norm_f") return norm("ln_f");
    if (block.name == "head")
      return std::make_shared<nn::CutHead>(groups, parameter(shape_.tie_embeddings ? "wte.weight" : "head.weight"));
    const size_t dot = block.name.rfind('.');
    const std::string layer = block.name.substr(0, dot + 1), part = block.name.substr(dot + 1);
    if (part == "norm_1") return norm(layer + "ln_1");
    if (part == "norm_2") return norm(layer + "ln_2");
    const std::string name = block.name.substr(0, dot);
    const nn::HeadPart own_heads{table_.tp, place_};
    const int exchanging = table_.ring ? 1 : table_.cp;
    if (part == "projection")
      return std::make_shared<nn::CutOutput>(name, groups, parameter(layer + "attn.proj.weight"));
    if (part == "attention" && table_.ring) return std::make_shared<nn::RingAttention>(name, layer_, own_heads);
    if (part == "attention" && table_.cp > 1)
      return std::make_shared<nn::HeadAttention>(name, layer_, exchanging, own_heads);
    if (part == "attention" || part == "qkv") {
      const int64_t heads = layer_.heads / table_.tp;
      nn::AttentionParameters parameters{parameter(layer + "attn.qkv.weight"),
                                         parameter_if(layer_.biases, layer + "attn.qkv.bias"),
                                         parameter(layer + "attn.proj.weight"), nullptr};
      GroupList kv_groups;  // groups with the keys and values, where several ranks hold the same heads
      for (const int g : block.groups)
        if (table_.groups[static_cast<size_t>(g)].max_copies() > 1)
          kv_groups.push_back(model_.groups[static_cast<size_t>(g)]);
      if (!kv_groups.empty()) {
        parameters.kv_weight = &nn::find(kv_groups, layer + "attn.qkv.weight");
        parameters.kv_bias = layer_.biases ? &nn::find(kv_groups, layer + "attn.qkv.bias") : nullptr;
      }
      if (part == "qkv")
        return std::make_shared<nn::CutProjection>(name, groups, parameters, layer_, own_heads, exchanging);
      return std::make_shared<nn::CutAttention>(block.name, groups, parameters,
                                                nn::attention_shape(layer_, heads, heads * place_));
    }
    if (part == "mlp")
      return std::make_shared<nn::CutFeedForward>(
          block.name, groups,
          nn::FeedForwardParameters{
              parameter_if(layer_.gated, layer + "mlp.gate.weight"), parameter(layer + "mlp.up.weight"),
              parameter_if(layer_.biases, layer + "mlp.up.bias"), parameter(layer + "mlp.down.weight"), nullptr});
    if (part == "experts") {
      const auto experts = std::make_shared<nn::RoutedExperts>(block.name, groups, layer, *layer_.mixture);
      model_.routers.push_back(experts->router_state());
      return experts;
    }
    HERD_CHECK(part == "add_1" || part == "add_2", "no block is called " + block.name);
    Parameter* bias = parameter_if(layer_.biases, layer + (part == "add_1" ? "attn.proj.bias" : "mlp.down.bias"));
    return std::make_shared<nn::AddResidual>(
        block.name, groups, bias, layer_.dropout,
        part == "add_1" ? nn::DropoutSite::kAttentionOutput : nn::DropoutSite::kFeedForward);
  }

  const Shape& shape_;
  const spec::ModelTable& table_;
  int place_;         // of this rank along axis tp
  int expert_place_;  // of this rank among those that hold experts
  at::Device device_;
  nn::TransformerShape layer_;
  std::map<std::string, ParameterSpec> whole_specs_;  // by name, before they are cut
  Model model_;
};

}  // namespace

Model make_split_decoder(const Shape& shape, const spec::ModelTable& table, RankPlace place, at::Device device) {
  return SplitDecoderBuilder(shape, table, place, device).build();
}

}  // namespace herd::models
