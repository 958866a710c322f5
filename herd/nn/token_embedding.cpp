#include "herd/nn/token_embedding.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include "herd/base/error.h"
#include "herd/nn/documents.h"
#include "herd/nn/dropout.h"
#include "herd/nn/embedding.h"

namespace herd::nn {

TokenEmbedding::TokenEmbedding(std::vector<std::shared_ptr<ParameterGroup>> groups, Parameter& tokens_VD,
                               Parameter* positions_CD, double dropout)
    : Block("embedding", std::move(groups)), tokens_VD_(tokens_VD), positions_CD_(positions_CD), dropout_(dropout) {}

Tuple TokenEmbedding::forward(const Tuple& ids_BT, const Context& context) {
  at::Tensor x_BTD = embedding(ids_BT.at(0), tokens_VD_);
  if (positions_CD_ != nullptr) x_BTD = x_BTD + positions_of(ids_BT[0], context);
  return {dropout_tokens(x_BTD, dropout_, DropoutSite::kEmbedding, context)};
}

at::Tensor TokenEmbedding::positions_of(const at::Tensor& ids_BT, const Context& context) const {
  const bool is_cut = context.cut.parts > 1;
  const int64_t B = ids_BT.size(0), T = ids_BT.size(1);
  const int64_t C = positions_CD_->spec().sizes[0], tokens = is_cut ? context.cut.tokens : context.past + T;
  if (tokens > C) {
    throw Error(Code::kBadConfig, "sequences of " + std::to_string(tokens) + " tokens, but the model's context is " +
                                      std::to_string(C) + "\n  fix: model.context of at least " +
                                      std::to_string(tokens));
  }
  if (!context.document_begins.empty()) {
    const TokenCut cut = is_cut ? context.cut : TokenCut{.tokens = T};
    return embedding(document_positions_tensor(context, B, cut).clamp_max_(C - 1), *positions_CD_);
  }
  if (!is_cut) return positions_CD_->value().narrow(0, context.past, T);
  std::vector<at::Tensor> numbers;
  for (const auto& [begin, count] : context.cut.spans())
    numbers.push_back(at::arange(begin, begin + count, positions_CD_->value().options().dtype(at::kLong)));
  return positions_CD_->value().index_select(0, at::cat(numbers).clamp_max_(C - 1));  // padding has the last position
}

}  // namespace herd::nn
