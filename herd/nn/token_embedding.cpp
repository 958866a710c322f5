#include "herd/nn/token_embedding.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "herd/base/error.h"
#include "herd/nn/documents.h"
#include "herd/nn/dropout.h"
#include "herd/nn/embedding.h"

namespace herd::nn {
namespace {

void check_context(int64_t tokens, int64_t C) {
  if (tokens <= C) return;
  throw Error(Code::kBadConfig, "sequences of " + std::to_string(tokens) + " tokens, but the model's context is " +
                                    std::to_string(C) + "\n  fix: model.context of at least " + std::to_string(tokens));
}

// Returns the positions of this rank's tokens of a sequence. Padding has the last one.
at::Tensor own_positions(const TokenCut& cut, int64_t C, const at::TensorOptions& options) {
  std::vector<at::Tensor> numbers;
  for (const auto& [begin, count] : cut.spans())
    numbers.push_back(at::arange(begin, begin + count, options.dtype(at::kLong)));
  return at::cat(numbers).clamp_max_(C - 1);
}

// Returns the position of each row of a shard in its document, of C positions. Rows of padding and tokens of padding
// have any.
at::Tensor positions_of_rows(const at::Tensor& x_SD, int64_t C, const Context& context) {
  const TokenCut cut = context.cut.parts > 1 ? context.cut : TokenCut{.tokens = context.tokens};
  const int64_t S = x_SD.size(0);
  if (!context.document_begins.empty()) {
    const int64_t B = static_cast<int64_t>(context.samples.size());
    const at::Tensor all = document_positions_tensor(context, B, cut, x_SD.device()).clamp_max_(C - 1).view({-1});
    const int64_t there = std::clamp<int64_t>(all.numel() - context.first_row, 0, S);
    const at::Tensor own = at::zeros({S}, all.options());
    if (there > 0) own.narrow(0, 0, there).copy_(all.narrow(0, context.first_row, there));
    return own;
  }
  const at::Tensor tokens = at::arange(context.first_row, context.first_row + S, x_SD.options().dtype(at::kLong));
  tokens.remainder_(cut.size());
  if (cut.parts > 1) return own_positions(cut, C, x_SD.options()).index_select(0, tokens);
  return context.past == 0 ? tokens : tokens + context.past;
}

}  // namespace

TokenEmbedding::TokenEmbedding(GroupList groups, Parameter& tokens_VD, Parameter* positions_CD, double dropout,
                               Parameter* segments_2D, std::shared_ptr<Norm> norm)
    : Block("embedding", std::move(groups)),
      tokens_VD_(tokens_VD),
      positions_CD_(positions_CD),
      dropout_(dropout),
      segments_2D_(segments_2D),
      norm_(std::move(norm)) {}

Tuple TokenEmbedding::forward(const Tuple& ids_BT, const Context& context) {
  const at::Tensor& ids = ids_BT.at(0);
  const bool is_shared = !tokens_VD_.spec().spans.empty();
  at::Tensor x = is_shared ? vocabulary_parallel_embedding(ids.reshape({-1}), tokens_VD_) : embedding(ids, tokens_VD_);
  if (segments_2D_ != nullptr)
    x = x + (positions_of(ids, context) + segments_2D_->value()[0]);
  else if (positions_CD_ != nullptr)
    x = x + positions_of(ids, context);
  if (norm_ != nullptr) x = norm_->forward({x}, context)[0];
  return {dropout_tokens(x, dropout_, DropoutSite::kEmbedding, context)};
}

at::Tensor TokenEmbedding::positions_of(const at::Tensor& ids_BT, const Context& context) const {
  const bool is_cut = context.cut.parts > 1;
  const int64_t B = ids_BT.size(0), T = ids_BT.size(1), C = positions_CD_->spec().sizes[0];
  check_context(is_cut ? context.cut.tokens : context.past + T, C);
  const at::Tensor& positions = positions_CD_->value();
  if (!context.document_begins.empty()) {
    const TokenCut cut = is_cut ? context.cut : TokenCut{.tokens = T};
    return embedding(document_positions_tensor(context, B, cut, ids_BT.device()).clamp_max_(C - 1), *positions_CD_);
  }
  if (!is_cut) return positions.narrow(0, context.past, T);
  return positions.index_select(0, own_positions(context.cut, C, positions.options()));
}

AddPositions::AddPositions(GroupList groups, Parameter& positions_CD, double dropout)
    : Block("positions", std::move(groups)), positions_CD_(positions_CD), dropout_(dropout) {}

Tuple AddPositions::forward(const Tuple& x_SD, const Context& context) {
  const at::Tensor& x = x_SD.at(0);
  const int64_t C = positions_CD_.spec().sizes[0];
  check_context(context.past + context.tokens, C);
  const at::Tensor y = x + positions_CD_.value().index_select(0, positions_of_rows(x, C, context));
  return {dropout_tokens(y, dropout_, DropoutSite::kEmbedding, context)};
}

Tuple AddPositions::backward(const Tuple& dy_SD, const Context& context) {
  const at::Tensor dx = dropout_tokens(dy_SD.at(0), dropout_, DropoutSite::kEmbedding, context);
  if (!positions_CD_.frozen()) {
    at::Tensor gradient = positions_CD_.gradient();
    if (positions_CD_.take_beta() == 0.0) gradient.zero_();
    add_rows(gradient, positions_of_rows(dx, positions_CD_.spec().sizes[0], context), dx);
  }
  return {dx};
}

}  // namespace herd::nn
