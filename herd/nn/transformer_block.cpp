#include "herd/nn/transformer_block.h"

#include <algorithm>
#include <cmath>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/nn/context_parts.h"
#include "herd/nn/experts_of_ranks.h"
#include "herd/nn/joined_block.h"

namespace herd::nn {
namespace {

constexpr double kInitDeviation = 0.02;  // standard deviation of initial weights

void add_norm(std::vector<ParameterSpec>& specs, const std::string& name, const TransformerShape& shape) {
  specs.push_back({name + ".weight", {shape.width}, false, Init::kOnes});
  if (shape.norm.has_bias()) specs.push_back({name + ".bias", {shape.width}});
}

void add_linear(std::vector<ParameterSpec>& specs, const std::string& name, int64_t out, int64_t in, double deviation,
                bool bias) {
  specs.push_back({name + ".weight", {out, in}, true, Init::kNormal, deviation});
  if (bias) specs.push_back({name + ".bias", {out}});
}

// Norms of the sums with the residual keep these small by themselves.
double residual_deviation(const TransformerShape& shape, int64_t layers) {
  return shape.norms_after ? kInitDeviation : kInitDeviation / std::sqrt(2.0 * static_cast<double>(layers));
}

void add_feed_forward(std::vector<ParameterSpec>& specs, const std::string& name, int64_t ffn,
                      const TransformerShape& shape, int64_t layers) {
  const int64_t D = shape.width;
  if (shape.gated) add_linear(specs, name + ".gate", ffn, D, kInitDeviation, false);
  add_linear(specs, name + ".up", ffn, D, kInitDeviation, shape.biases);
  add_linear(specs, name + ".down", D, ffn, residual_deviation(shape, layers), shape.biases);
}

// Returns the second of the parameters with this name; null where there is none.
Parameter* find_second(const GroupList& groups, const std::string& parameter_name) {
  int before = 0;
  for (const auto& group : groups) {
    for (Parameter& parameter : group->parameters()) {
      if (parameter.spec().name == parameter_name && before++ == 1) return &parameter;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<ParameterSpec> transformer_parameters(const std::string& prefix, const TransformerShape& shape,
                                                  int64_t layers) {
  if (shape.heads < 1 || (shape.head_width == 0 && shape.width % shape.heads != 0)) {
    throw Error(Code::kBadConfig, "heads must divide the width: " + std::to_string(shape.width) + " % " +
                                      std::to_string(shape.heads) +
                                      " != 0\n  fix: model.heads that divides model.width");
  }
  const int64_t D = shape.width, A = shape.heads * shape.width_of_head();
  const int64_t K = A / shape.query_heads_per_key();
  std::vector<ParameterSpec> specs;
  add_norm(specs, prefix + "ln_1", shape);
  add_linear(specs, prefix + "attn.qkv", A + 2 * K, D, kInitDeviation, shape.has_qkv_bias());
  if (shape.qk_norm) {
    for (const char* norm : {"attn.q_norm.weight", "attn.k_norm.weight"})
      specs.push_back({prefix + norm, {shape.width_of_head()}, false, Init::kOnes});
  }
  add_linear(specs, prefix + "attn.proj", D, A, residual_deviation(shape, layers), shape.biases);
  add_norm(specs, prefix + "ln_2", shape);
  if (!shape.mixture) {
    add_feed_forward(specs, prefix + "mlp", shape.ffn, shape, layers);
    return specs;
  }
  add_linear(specs, prefix + "router", shape.mixture->experts, D, kInitDeviation, false);
  if (shape.mixture->shared_ffn > 0)
    add_feed_forward(specs, prefix + "shared", shape.mixture->shared_ffn, shape, layers);
  if (shape.mixture->shared_gate) add_linear(specs, prefix + "shared_gate", 1, D, kInitDeviation, false);
  return specs;
}

std::vector<ParameterSpec> expert_parameters(const std::string& prefix, const TransformerShape& shape, int64_t layers) {
  const int64_t E = shape.mixture->experts, F = shape.mixture->ffn, D = shape.width;
  return {{prefix + "experts.gate.weight", {E, F, D}, true, Init::kNormal, kInitDeviation},
          {prefix + "experts.up.weight", {E, F, D}, true, Init::kNormal, kInitDeviation},
          {prefix + "experts.down.weight", {E, D, F}, true, Init::kNormal, residual_deviation(shape, layers)}};
}

AttentionShape attention_shape(const TransformerShape& shape, int64_t heads, int64_t first_head) {
  return {.heads = heads,
          .kv_heads = std::max<int64_t>(1, heads / shape.query_heads_per_key()),
          .rotary = shape.rotary ? rotary_frequencies(*shape.rotary, shape.width_of_head()) : at::Tensor(),
          .causal = shape.causal,
          .dropout = shape.dropout,
          .recompute = shape.recompute_attention,
          .first_head = first_head};
}

std::shared_ptr<Block> LayerParts::make_part(const std::string& name, const std::string& prefix,
                                             const std::string& part, const GroupList& groups,
                                             std::shared_ptr<const Norm> joined_norm) {
  const auto weight = [&](const std::string& of) -> Parameter& { return find(groups, prefix + of + ".weight"); };
  const auto bias = [&](bool exists, const std::string& of) {
    return exists ? &find(groups, prefix + of + ".bias") : nullptr;
  };
  const auto norm = [&](const std::string& of) {
    return std::make_shared<Norm>(name, groups, shape.norm, weight(of), bias(shape.norm.has_bias(), of));
  };
  const auto add = [&](const std::string& of, DropoutSite site) {
    return std::make_shared<AddResidual>(name, groups, bias(shape.biases && is_split, of), shape.dropout, site,
                                         std::move(joined_norm));
  };
  if (part == "norm_1") return norm("ln_1");
  if (part == "norm_2") return norm("ln_2");
  if (part == "add_1") return add("attn.proj", DropoutSite::kAttentionOutput);
  if (part == "add_2") return add("mlp.down", DropoutSite::kFeedForward);
  const bool has_whole_bias = shape.biases && !is_split;
  if (part == "mlp")
    return std::make_shared<LayerFeedForward>(
        name, groups,
        FeedForwardParameters{shape.gated ? &weight("mlp.gate") : nullptr, weight("mlp.up"),
                              bias(shape.biases, "mlp.up"), weight("mlp.down"), bias(has_whole_bias, "mlp.down"),
                              shape.exact_gelu});
  if (part == "route") {
    const auto route = std::make_shared<RouteRows>(name, groups, prefix, *shape.mixture);
    routers.push_back(route->router_state());
    return route;
  }
  if (part == "combine") return std::make_shared<CombineRows>(name, groups);
  if (part == "experts" && shape.mixture->ranks > 1) return std::make_shared<OwnExperts>(name, groups, prefix);
  if (part == "experts") {
    const auto experts = std::make_shared<RoutedExperts>(name, groups, prefix, *shape.mixture);
    routers.push_back(experts->router_state());
    return experts;
  }
  const int exchanging = ring ? 1 : context_ranks;
  if (part == "projection")
    return std::make_shared<HeadOutput>(name, groups, weight("attn.proj"), bias(has_whole_bias, "attn.proj"), is_split);
  if (part == "attention" && ring) return std::make_shared<RingAttention>(name, shape, heads);
  if (part == "attention" && context_ranks > 1) return std::make_shared<HeadAttention>(name, shape, exchanging, heads);
  HERD_CHECK(part == "attention" || part == "qkv", "no part of a layer is called " + part);
  HeadNorms head_norms;
  if (shape.qk_norm) head_norms = {&weight("attn.q_norm"), &weight("attn.k_norm"), shape.norm};
  const AttentionParameters parameters{.qkv_weight = weight("attn.qkv"),
                                       .qkv_bias = bias(shape.has_qkv_bias(), "attn.qkv"),
                                       .out_weight = weight("attn.proj"),
                                       .out_bias = bias(has_whole_bias, "attn.proj"),
                                       .kv_weight = find_second(groups, prefix + "attn.qkv.weight"),
                                       .kv_bias = find_second(groups, prefix + "attn.qkv.bias"),
                                       .norms = head_norms};
  if (part == "qkv") return std::make_shared<HeadProjection>(name, groups, parameters, shape, heads, exchanging);
  return std::make_shared<LayerAttention>(name, groups, parameters, heads.of(shape));
}

std::shared_ptr<Block> LayerParts::make(const std::string& name, const std::string& prefix,
                                        const std::vector<std::string>& parts, const GroupList& groups) {
  if (parts.size() == 1) return make_part(name, prefix, parts[0], groups);
  using enum LayerValue;
  std::vector<JoinedBlock::Part> joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part = parts[i];
    if (shape.norms_after) {
      const bool is_add = part.starts_with("add"), is_branch = part == "attention" || part == "mlp";
      joined.push_back({make_part(name, prefix, part, groups),
                        is_add ? LayerValues{kSum, kBranch} : LayerValues{kSum},
                        {is_branch ? kBranch : kSum}});
    } else if (part.starts_with("add")) {
      std::shared_ptr<const Norm> norm;
      if (i + 1 < parts.size())
        norm = std::dynamic_pointer_cast<const Norm>(make_part(name, prefix, parts[++i], groups));
      joined.push_back({make_part(name, prefix, part, groups, norm), {kSum, kBranch}, {kSum, kBranch}});
    } else if (part == "experts") {
      joined.push_back({make_part(name, prefix, part, groups), {kBranch, kLosses}, {kBranch, kLosses}});
    } else {
      joined.push_back({make_part(name, prefix, part, groups), {part == "norm_1" ? kSum : kBranch}, {kBranch}});
    }
  }
  const bool has_losses =
      shape.mixture && shape.mixture->router.with_losses && std::ranges::count(parts, "experts") > 0;
  LayerValues gives = {parts.back() == "add_2" || shape.norms_after ? kSum : kBranch};
  if (has_losses) gives.push_back(kLosses);
  return std::make_shared<JoinedBlock>(
      name, groups,
      parts[0] == "norm_1" || shape.norms_after ? LayerValues{kSum, kLosses} : LayerValues{kSum, kBranch, kLosses},
      std::move(joined), std::move(gives));
}

}  // namespace herd::nn
