// The last block of a model that predicts masked words: of the rows whose targets count it makes
//   t = norm(gelu(x W_d^T + b_d)),   logits = t E^T + b,   cross-entropy (chunked_cross_entropy.h)
// gelu by its exact form. With tied embeddings E is the token embedding of the first block's group. As many tokens of
// each sequence are predicted, so that a device picks their rows without the host; a sequence without targets, which
// fills up a batch, adds nothing. Source: Devlin et al. 2019, arXiv:1810.04805.   Threads: one at a time.
#pragma once

#include "herd/nn/block.h"
#include "herd/nn/layer_parts.h"

namespace herd::nn {

struct MaskedHeadParameters {
  Parameter& dense_weight;  // (D, D)
  Parameter& dense_bias;
  Parameter& projection_VD;
  Parameter& projection_bias_V;
};

class MaskedHead final : public LossBlock {
 public:
  // `tokens` of a sequence count. The parameters are of `groups`.
  MaskedHead(GroupList groups, const MaskedHeadParameters& parameters, std::shared_ptr<Norm> norm, int64_t tokens);
  Tuple forward(const Tuple& x_BTD, const Context& context) override;  // logits (B, T, V) of all tokens
  LossResult loss(const Tuple& x_BTD, const at::Tensor& targets_BT, const Context& context, bool with_gradients,
                  DeferredGradients* deferred = nullptr) override;

 private:
  at::Tensor transform(const at::Tensor& rows_MD, const Context& context) const;
  MaskedHeadParameters parameters_;
  std::shared_ptr<Norm> norm_;
  int64_t tokens_;
};

}  // namespace herd::nn
