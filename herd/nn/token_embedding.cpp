#include "herd/nn/token_embedding.h"

#include "herd/base/error.h"
#include "herd/nn/dropout.h"
#include "herd/nn/embedding.h"

namespace herd::nn {

TokenEmbedding::TokenEmbedding(std::vector<std::shared_ptr<ParameterGroup>> groups, Parameter& tokens_VD,
                               Parameter* positions_CD, double dropout)
    : Block("embedding", std::move(groups)), tokens_VD_(tokens_VD), positions_CD_(positions_CD), dropout_(dropout) {}

Tuple TokenEmbedding::forward(const Tuple& ids_BT, const Context& context) {
  at::Tensor x_BTD = embedding(ids_BT.at(0), tokens_VD_);
  if (positions_CD_ != nullptr) x_BTD = x_BTD + positions_of(ids_BT[0].size(1), context);
  return {dropout(x_BTD, dropout_, DropoutSite::kEmbedding, context)};
}

at::Tensor TokenEmbedding::positions_of(int64_t T, const Context& context) const {
  const int64_t begin = context.past, C = positions_CD_->spec().sizes[0];
  if (begin + T > C) {
    throw Error(Code::kBadConfig, "sequences of " + std::to_string(begin + T) + " tokens, but the model's context is " +
                                      std::to_string(C) + "\n  fix: model.context of at least " +
                                      std::to_string(begin + T));
  }
  return positions_CD_->value().narrow(0, begin, T);
}

}  // namespace herd::nn
