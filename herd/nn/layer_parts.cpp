#include "herd/nn/layer_parts.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/nn/chunked_cross_entropy.h"
#include "herd/nn/deferred_gradients.h"
#include "herd/nn/documents.h"
#include "herd/nn/dropout.h"
#include "herd/nn/embedding.h"
#include "herd/nn/linear.h"

namespace herd::nn {
namespace {

// Returns the position of each row of a shard in its document, of C positions. Rows of padding and tokens of padding
// have any.
at::Tensor positions_of(const at::Tensor& x_SD, int64_t C, const Context& context) {
  const auto integers = x_SD.options().dtype(at::kLong);
  const TokenCut cut = context.cut.parts > 1 ? context.cut : TokenCut{.tokens = context.tokens};
  if (!context.document_begins.empty()) {
    const int64_t S = x_SD.size(0), B = static_cast<int64_t>(context.samples.size());
    const at::Tensor all = document_positions_tensor(context, B, cut).clamp_max_(C - 1).view({-1});
    const int64_t there = std::clamp<int64_t>(all.numel() - context.first_row, 0, S);
    const at::Tensor own = at::zeros({S}, at::kLong);
    if (there > 0) own.narrow(0, 0, there).copy_(all.narrow(0, context.first_row, there));
    return own;
  }
  at::Tensor positions =
      at::arange(context.first_row, context.first_row + x_SD.size(0), integers).remainder_(cut.size());
  if (cut.parts > 1) {
    std::vector<at::Tensor> tokens;
    for (const auto& [begin, count] : cut.spans()) tokens.push_back(at::arange(begin, begin + count, integers));
    positions = at::cat(tokens).clamp_max_(C - 1).index_select(0, positions);
  }
  return context.past == 0 ? positions : positions + context.past;
}

// Adds the sum over rows to the gradient, in the gradient's precision.
void add_row_sum(Parameter& parameter, const at::Tensor& dy_SD) {
  if (!parameter.frozen()) parameter.add_gradient(dy_SD.sum(0, false, parameter.gradient().scalar_type()));
}

}  // namespace

CutEmbedding::CutEmbedding(GroupList groups, Parameter& tokens_VD, double dropout)
    : Block("embedding", std::move(groups)), tokens_VD_(tokens_VD), dropout_(dropout) {}

Tuple CutEmbedding::forward(const Tuple& ids_BT, const Context& context) {
  return {dropout_rows(vocabulary_parallel_embedding(ids_BT.at(0).reshape({-1}), tokens_VD_), dropout_,
                       DropoutSite::kEmbedding, context)};
}

AddPositions::AddPositions(GroupList groups, Parameter& positions_CD, double dropout)
    : Block("positions", std::move(groups)), positions_CD_(positions_CD), dropout_(dropout) {}

Tuple AddPositions::forward(const Tuple& x_SD, const Context& context) {
  const at::Tensor& x = x_SD.at(0);
  if (const int64_t tokens = context.past + context.tokens; tokens > positions_CD_.spec().sizes[0]) {
    throw Error(Code::kBadConfig, "sequences of " + std::to_string(tokens) + " tokens, but the model's context is " +
                                      std::to_string(positions_CD_.spec().sizes[0]) +
                                      "\n  fix: model.context of at least " + std::to_string(tokens));
  }
  const at::Tensor y =
      x + positions_CD_.value().index_select(0, positions_of(x, positions_CD_.spec().sizes[0], context));
  return {dropout_rows(y, dropout_, DropoutSite::kEmbedding, context)};
}

Tuple AddPositions::backward(const Tuple& dy_SD, const Context& context) {
  const at::Tensor dx = dropout_rows(dy_SD.at(0), dropout_, DropoutSite::kEmbedding, context);
  if (!positions_CD_.frozen()) {
    at::Tensor gradient = positions_CD_.gradient();
    if (positions_CD_.take_beta() == 0.0) gradient.zero_();
    add_rows(gradient, positions_of(dx, positions_CD_.spec().sizes[0], context), dx);
  }
  return {dx};
}

Norm::Norm(std::string name, GroupList groups, const NormStyle& style, Parameter& gain, Parameter* bias)
    : Block(std::move(name), std::move(groups)), style_(style), gain_(gain), bias_(bias) {}

Tuple Norm::forward(const Tuple& x_SD, const Context&) { return {norm(style_, x_SD.at(0), gain_, bias_)}; }

CutAttention::CutAttention(std::string name, GroupList groups, const AttentionParameters& parameters,
                           const AttentionShape& shape)
    : Block(std::move(name), std::move(groups)), parameters_(parameters), shape_(shape) {}

Tuple CutAttention::forward(const Tuple& n_RD, const Context& context) {
  const at::Tensor& n = n_RD.at(0);
  const int64_t D = n.size(1), T = context.tokens, B = T == 0 ? 0 : n.size(0) / T;
  return {self_attention(n.view({B, T, D}), parameters_, shape_, context).view({-1, D})};
}

AddResidual::AddResidual(std::string name, GroupList groups, Parameter* bias, double dropout, DropoutSite site)
    : Block(std::move(name), std::move(groups)), bias_(bias), dropout_(dropout), site_(site) {}

Tuple AddResidual::forward(const Tuple& x_and_y_SD, const Context& context) {
  const at::Tensor &x = x_and_y_SD.at(0), &y = x_and_y_SD.at(1);
  const at::Tensor sum = bias_ != nullptr ? y + bias_->value() : y;
  const at::Tensor branch = dropout_rows(sum, dropout_, site_, context);
  return {x + branch};
}

Tuple AddResidual::backward(const Tuple& dz_SD, const Context& context) {
  const at::Tensor dy = dropout_rows(dz_SD.at(0), dropout_, site_, context);
  if (bias_ != nullptr) add_row_sum(*bias_, dy);
  return {dz_SD[0], dy};
}

CutFeedForward::CutFeedForward(std::string name, GroupList groups, const FeedForwardParameters& parameters)
    : Block(std::move(name), std::move(groups)), parameters_(parameters) {}

Tuple CutFeedForward::forward(const Tuple& n_RD, const Context&) { return {feed_forward(n_RD.at(0), parameters_)}; }

RoutedExperts::RoutedExperts(std::string name, GroupList groups, const std::string& prefix, const MixtureShape& shape)
    : Block(std::move(name), std::move(groups)), mixture_(this->groups(), prefix, shape) {}

CutHead::CutHead(GroupList groups, Parameter& projection_VD)
    : LossBlock("head", std::move(groups)), projection_VD_(projection_VD) {}

Tuple CutHead::forward(const Tuple& n_RD, const Context&) { return {linear(n_RD.at(0), projection_VD_)}; }

LossResult CutHead::loss(const Tuple& n_RD, const at::Tensor& targets_BT, const Context& context, bool with_gradients,
                         DeferredGradients* deferred) {
  HERD_CHECK(context.tensor_ranks != nullptr, "a vocabulary that is cut has ranks that share it");
  const ParameterSpec& spec = projection_VD_.spec();
  const at::Tensor n = n_RD.at(0).detach();
  const CrossEntropyResult head = chunked_cross_entropy(
      n, projection_VD_, targets_BT.reshape({-1}),
      {.with_gradients = with_gradients,
       .loss_weight = context.loss_weight,
       .deferred = deferred,
       .shared = {.ranks = context.tensor_ranks, .first = spec.spans.at(0).begin, .words = spec.sizes_of_whole()[0]}});
  LossResult result{.sum = head.sum, .count = head.count, .on_device = head.on_device};
  if (!with_gradients) return result;
  finish_gradients(groups(), deferred);
  result.dx = {head.dn_ND};
  return result;
}

}  // namespace herd::nn
