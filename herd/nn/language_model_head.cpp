#include "herd/nn/language_model_head.h"

#include <ATen/ops/cat.h>

#include "herd/base/check.h"
#include "herd/nn/chunked_cross_entropy.h"
#include "herd/nn/linear.h"
#include "herd/nn/run_block.h"

namespace herd::nn {

LanguageModelHead::LanguageModelHead(GroupList groups, std::shared_ptr<Norm> norm, Parameter& projection_VD,
                                     const RouterLossFactors& router_losses)
    : LossBlock("head", std::move(groups)),
      norm_(std::move(norm)),
      projection_VD_(projection_VD),
      router_losses_(router_losses) {}

Tuple LanguageModelHead::forward(const Tuple& x_BTD, const Context& context) {
  return {linear(norm_ != nullptr ? norm_->forward(x_BTD, context)[0] : x_BTD.at(0), projection_VD_)};
}

LossResult LanguageModelHead::loss(const Tuple& x_BTD, const at::Tensor& targets_BT, const Context& context,
                                   bool with_gradients, DeferredGradients* deferred) {
  const ParameterSpec& spec = projection_VD_.spec();
  SharedVocabulary shared;
  if (!spec.spans.empty()) {
    HERD_CHECK(context.tensor_ranks != nullptr, "a vocabulary that is cut has ranks that share it");
    shared = {.ranks = context.tensor_ranks, .first = spec.spans[0].begin, .words = spec.sizes_of_whole()[0]};
  }
  at::AutoGradMode grad_mode(with_gradients);
  Graph graph;  // graph of the norm; the projection differentiates itself
  graph.groups = groups(), graph.block = this;
  const at::Tensor x = x_BTD.at(0).detach();
  graph.inputs = {with_gradients ? x.requires_grad_() : x};
  if (norm_ != nullptr) graph.outputs = norm_->forward(graph.inputs, context);
  const at::Tensor n_ND = (norm_ != nullptr ? graph.outputs[0].detach() : x.detach()).view({-1, x.size(-1)});
  const CrossEntropyResult head = chunked_cross_entropy(
      n_ND, projection_VD_, targets_BT.reshape({-1}),
      {.with_gradients = with_gradients, .loss_weight = context.loss_weight, .deferred = deferred, .shared = shared});
  LossResult result{.sum = head.sum, .count = head.count, .on_device = head.on_device};
  if (with_gradients && norm_ != nullptr) {
    result.dx = run_backward(std::move(graph), {head.dn_ND.view(x.sizes())}, deferred);
  } else if (with_gradients) {
    finish_gradients(groups(), deferred);
    result.dx = {head.dn_ND};
  }
  if (x_BTD.size() < 2) return result;
  const at::Tensor& losses_B2 = x_BTD[1];
  if (with_gradients) result.dx.resize(2);
  if (!context.training) return result;
  const at::Tensor counted_B1 = context.counted_B1.defined() ? context.counted_B1.to(targets_BT.device())
                                                             : targets_BT.ge(0).to(at::kDouble).mean(1, true);
  const at::Tensor weights_B2 = at::cat({counted_B1 * router_losses_.balance, counted_B1 * router_losses_.z}, 1);
  const at::Tensor router_loss = (losses_B2.to(at::kDouble) * weights_B2).sum();
  if (result.on_device.defined())
    result.on_device[0].add_(router_loss);
  else
    result.sum += router_loss.item<double>();
  if (with_gradients) result.dx[1] = (weights_B2 * context.loss_weight).to(losses_B2.scalar_type());
  return result;
}

}  // namespace herd::nn
