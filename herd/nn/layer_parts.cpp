#include "herd/nn/layer_parts.h"

namespace herd::nn {
namespace {

// Adds the sum over rows to the gradient, in the gradient's precision.
void add_row_sum(Parameter& parameter, const at::Tensor& dy_SD) {
  if (!parameter.frozen()) parameter.add_gradient(dy_SD.sum(0, false, parameter.gradient().scalar_type()));
}

}  // namespace

Norm::Norm(std::string name, GroupList groups, const NormStyle& style, Parameter& gain, Parameter* bias)
    : Block(std::move(name), std::move(groups)), style_(style), gain_(gain), bias_(bias) {}

Tuple Norm::forward(const Tuple& x_SD, const Context&) { return {norm(style_, x_SD.at(0), gain_, bias_)}; }

Tuple Norm::of_sum(const at::Tensor& x, const at::Tensor& added) const {
  const auto [sum, n] = add_and_norm(style_, x, added, gain_, bias_);
  return {sum, n};
}

LayerAttention::LayerAttention(std::string name, GroupList groups, const AttentionParameters& parameters,
                               const AttentionShape& shape)
    : Block(std::move(name), std::move(groups)), parameters_(parameters), shape_(shape) {}

Tuple LayerAttention::forward(const Tuple& n_RD, const Context& context) {
  const at::Tensor& n = n_RD.at(0);
  if (n.dim() == 3) return {self_attention(n, parameters_, shape_, context)};
  const int64_t D = n.size(1), T = context.tokens, B = T == 0 ? 0 : n.size(0) / T;
  return {self_attention(n.view({B, T, D}), parameters_, shape_, context).view({-1, D})};
}

AddResidual::AddResidual(std::string name, GroupList groups, Parameter* bias, double dropout, DropoutSite site,
                         std::shared_ptr<const Norm> norm)
    : Block(std::move(name), std::move(groups)), norm_(std::move(norm)), bias_(bias), dropout_(dropout), site_(site) {}

Tuple AddResidual::forward(const Tuple& x_and_y_SD, const Context& context) {
  const at::Tensor &x = x_and_y_SD.at(0), &y = x_and_y_SD.at(1);
  const at::Tensor sum = bias_ != nullptr ? y + bias_->value() : y;
  const at::Tensor branch = dropout_tokens(sum, dropout_, site_, context);
  return norm_ != nullptr ? norm_->of_sum(x, branch) : Tuple{x + branch};
}

Tuple AddResidual::backward(const Tuple& dz_SD, const Context& context) {
  const at::Tensor dy = dropout_tokens(dz_SD.at(0), dropout_, site_, context);
  if (bias_ != nullptr) add_row_sum(*bias_, dy);
  return {dz_SD[0], dy};
}

LayerFeedForward::LayerFeedForward(std::string name, GroupList groups, const FeedForwardParameters& parameters)
    : Block(std::move(name), std::move(groups)), parameters_(parameters) {}

Tuple LayerFeedForward::forward(const Tuple& n_RD, const Context&) { return {feed_forward(n_RD.at(0), parameters_)}; }

}  // namespace herd::nn
