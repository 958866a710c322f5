// The last block of a language model: norm, projection to the vocabulary, cross-entropy (chunked_cross_entropy.h). With
// tied embeddings the projection is the token embedding of the first block's group.
//   Where ranks of a tensor-parallel axis share the vocabulary, the norm is a block before it, rows are n_RD, and the
//   gradient that it gives is partial.
//   Where layers have routers, their losses (B, 2) come along (router.h). While training, each times its factor is
//   added to the sum of the tokens' losses; of a sequence with targets that don't count, such as padding, only the
//   share of those that do. Threads: one at a time.
#pragma once

#include "herd/nn/block.h"
#include "herd/nn/layer_parts.h"

namespace herd::nn {

// Factors of the losses of routers.
struct RouterLossFactors {
  double balance = 0, z = 0;
};

class LanguageModelHead final : public LossBlock {
 public:
  // `norm` is null where another block normalises. The parameters are of `groups`.
  LanguageModelHead(GroupList groups, std::shared_ptr<Norm> norm, Parameter& projection_VD,
                    const RouterLossFactors& router_losses = {});
  Tuple forward(const Tuple& x_BTD, const Context& context) override;  // logits (B, T, V), of this rank's entries
  // Computes the loss as LossBlock::loss() says.
  LossResult loss(const Tuple& x_BTD, const at::Tensor& targets_BT, const Context& context, bool with_gradients,
                  DeferredGradients* deferred = nullptr) override;

 private:
  std::shared_ptr<Norm> norm_;
  Parameter& projection_VD_;
  RouterLossFactors router_losses_;
};

}  // namespace herd::nn
