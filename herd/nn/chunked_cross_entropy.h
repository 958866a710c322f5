// Computes the head of a language model: logits, cross-entropy and both gradients, a piece of the tokens at a time.
// There are N tokens of width D, and V entries of the vocabulary.
//   n_ND -> logits = n W^T + b (N, V), b only where a bias is given
//   loss_i = log(sum_j exp(logit_ij)) - logit_i,target(i)
//   dlogits_ij = loss_weight * (softmax(logits)_ij - [j = target(i)]);  dn = dlogits W;  dW += dlogits^T n
// One buffer of `chunk` x V logits is reused, and turned into its own gradient in place, so the logits are never held
// twice. Where the product dW is deferred, all logits are held until it is made. With 16-bit weights the products
// are 16-bit, and softmax and loss are computed in a second buffer of fp32; on a device one kernel computes both in
// fp32 from the 16-bit logits, without that buffer. It takes 6*N*V*D FLOP with gradients, 2*N*V*D without.
//   Ranks may share the vocabulary: each has the logits of its entries alone. For each row it tells the others its
//   maximum m_r, its sum s_r = sum_j exp(logit_j - m_r) and the target's logit, in one gather of 3 numbers a row and
//   chunk: loss = M + log(sum_r s_r exp(m_r - M)) - logit_target with M = max m_r. dn is then a partial sum.
// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3 (vocabulary-parallel loss); Milakov & Gimelshein 2018,
// arXiv:1805.02867 (sums of parts).
// Threads: one at a time.
#pragma once

#include "herd/nn/block.h"

namespace herd::nn {

// Says which entries of the vocabulary this rank has: [first, first + rows of the weights). `words` counts the entries
// of all ranks.
struct SharedVocabulary {
  comm::Communicator* ranks = nullptr;  // null: this rank has all entries
  int64_t first = 0, words = 0;
};

struct CrossEntropyOptions {
  bool with_gradients = true;
  double loss_weight = 1;                 // multiplies the gradients, not CrossEntropyResult::sum
  DeferredGradients* deferred = nullptr;  // makes dW later, from the gradients of all logits; null: at once
  // Bytes of the fp32 logits at a time; at least one token. 0 = 64 MiB, and on a device 512 MiB: products of more rows
  // keep it busier, and add to the gradient of the weights less often.
  int64_t chunk_bytes = 0;
  SharedVocabulary shared = {};
  Parameter* bias_V = nullptr;  // added to the logits; REQUIRES a vocabulary that no ranks share
};

struct CrossEntropyResult {
  double sum = 0;     // sum of the token losses, in nats, not multiplied by loss_weight
  int64_t count = 0;  // targets that count
  at::Tensor dn_ND;   // undefined without gradients
  // On a device: the sum and the count, fp64 [2], which stay there; `sum` and `count` are then 0.
  at::Tensor on_device;
};

// REQUIRES a contiguous n_ND and targets int64 (N), where negative ones do not count. Throws kBadConfig for a target >=
// V; on a device, which nothing waits for, such a target does not count. Collective among the ranks that share the
// vocabulary; each gets the same sum and count.
CrossEntropyResult chunked_cross_entropy(const at::Tensor& n_ND, Parameter& weight_VD, const at::Tensor& targets,
                                         const CrossEntropyOptions& options);

}  // namespace herd::nn
