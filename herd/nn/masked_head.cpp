#include "herd/nn/masked_head.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gelu.h>

#include "herd/base/check.h"
#include "herd/nn/chunked_cross_entropy.h"
#include "herd/nn/linear.h"
#include "herd/nn/run_block.h"

namespace herd::nn {
namespace {

// Returns the numbers of the rows of B x T whose targets count: `tokens` of each sequence, of those that have so many.
at::Tensor counted_rows(const at::Tensor& targets_BT, int64_t tokens) {
  const int64_t B = targets_BT.size(0), T = targets_BT.size(1);
  HERD_CHECK(tokens <= T, "sequences of fewer tokens than are predicted");
  const auto [sorted, order_BT] = targets_BT.ge(0).sort(/*stable=*/true, /*dim=*/1, /*descending=*/true);
  const at::Tensor firsts_B1 = at::arange(0, B * T, T, order_BT.options()).unsqueeze(1);
  return (order_BT.narrow(1, 0, tokens) + firsts_B1).view({-1});
}

}  // namespace

MaskedHead::MaskedHead(GroupList groups, const MaskedHeadParameters& parameters, std::shared_ptr<Norm> norm,
                       int64_t tokens)
    : LossBlock("head", std::move(groups)), parameters_(parameters), norm_(std::move(norm)), tokens_(tokens) {}

at::Tensor MaskedHead::transform(const at::Tensor& rows_MD, const Context& context) const {
  const at::Tensor dense = linear(rows_MD, parameters_.dense_weight, &parameters_.dense_bias);
  return norm_->forward({at::gelu(dense, "none")}, context)[0];
}

Tuple MaskedHead::forward(const Tuple& x_BTD, const Context& context) {
  return {linear(transform(x_BTD.at(0), context), parameters_.projection_VD, &parameters_.projection_bias_V)};
}

LossResult MaskedHead::loss(const Tuple& x_BTD, const at::Tensor& targets_BT, const Context& context,
                            bool with_gradients, DeferredGradients* deferred) {
  const at::Tensor rows = counted_rows(targets_BT, tokens_), targets = targets_BT.view({-1}).index_select(0, rows);
  at::AutoGradMode grad_mode(with_gradients);
  Graph graph;  // of the rows up to the norm; the projection differentiates itself
  graph.groups = groups(), graph.block = this;
  const at::Tensor x = x_BTD.at(0).detach();
  graph.inputs = {with_gradients ? x.requires_grad_() : x};
  graph.outputs = {transform(graph.inputs[0].view({-1, x.size(-1)}).index_select(0, rows), context)};
  const CrossEntropyResult head = chunked_cross_entropy(graph.outputs[0].detach(), parameters_.projection_VD, targets,
                                                        {.with_gradients = with_gradients,
                                                         .loss_weight = context.loss_weight,
                                                         .deferred = deferred,
                                                         .bias_V = &parameters_.projection_bias_V});
  LossResult result{.sum = head.sum, .count = head.count, .on_device = head.on_device};
  if (with_gradients) result.dx = run_backward(std::move(graph), {head.dn_ND}, deferred);
  return result;
}

}  // namespace herd::nn
