// The head of a language model: logits, cross-entropy and both gradients, a piece of the tokens at a time.
//   n_ND -> logits = n W^T (N, V);  loss_i = log(sum_j exp(logit_ij)) - logit_i,target(i)
//   dlogits_ij = weight * (softmax(logits)_ij - [j = target(i)]);  dn = dlogits W;  dW += dlogits^T n
// One buffer of `chunk` x V logits is used over and over and turned into its own gradient in place, so the logits are
// never held twice; where the product dW is left to later, all of them are held until it is made. With 16-bit weights
// the products are 16-bit, and softmax and loss are computed in a second buffer of fp32. 6*N*V*D FLOP with gradients,
// 2*N*V*D without.
//   Ranks may share the vocabulary: each has the logits of its words alone, and of each row tells the others its
//   maximum m_r, its sum s_r = sum_j exp(logit_j - m_r) and the target's logit, one gather of 3 numbers a row and
//   chunk: loss = M + log(sum_r s_r exp(m_r - M)) - logit_target with M = max m_r. dn is then a partial sum.
// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3 (vocabulary-parallel loss); Milakov & Gimelshein 2018,
// arXiv:1805.02867 (sums of parts).
#pragma once

#include "herd/nn/block.h"

namespace herd::nn {

// Words [first, first + rows of the weights) of `words` are this rank's.
struct SharedVocabulary {
  comm::Communicator* ranks = nullptr;  // null: it has all of them
  int64_t first = 0, words = 0;
};

struct CrossEntropyOptions {
  bool with_gradients = true;
  double weight = 1;
  DeferredGradients* later = nullptr;  // makes dW, from the gradients of all logits; null: at once
  int64_t chunk_bytes = 64 << 20;      // of the fp32 logits; at least one token
  SharedVocabulary shared = {};
};

struct CrossEntropyResult {
  double sum = 0;  // nats
  int64_t count = 0;
  at::Tensor dn_ND;  // undefined without gradients
};

// n_ND contiguous; targets int64 (N), negative = not counted. Throws kBadConfig for a target >= V. Collective among
// the ranks that share the vocabulary; each gets the same sum and count.
CrossEntropyResult chunked_cross_entropy(const at::Tensor& n_ND, Parameter& weight_VD, const at::Tensor& targets,
                                         const CrossEntropyOptions& options);

}  // namespace herd::nn
