#include "herd/nn/chunked_cross_entropy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <vector>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/bridge/device_stream.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/communicator.h"
#include "herd/nn/deferred_gradients.h"
#include "herd/nn/half_products_internal.h"
#include "herd/nn/linear.h"

namespace herd::nn {
namespace {

void check_targets(const at::Tensor& targets, int64_t vocabulary) {
  if (!targets.is_cpu()) return;
  const int64_t highest = targets.numel() == 0 ? -1 : targets.max().item<int64_t>();
  if (highest < vocabulary) return;
  throw Error(Code::kBadConfig, "a target token is " + std::to_string(highest) + ", but the vocabulary is [0, " +
                                    std::to_string(vocabulary) + ")\n  fix: model.vocab of at least " +
                                    std::to_string(highest + 1));
}

// Turns logits into log probabilities in place, and returns the sum of the token losses. Rows are counted where
// counted_C is true; safe_C1 holds their targets, and 0 in the other rows.
double log_softmax_loss(at::Tensor& logits_CV, const at::Tensor& safe_C1, const at::Tensor& counted_C) {
  at::_log_softmax_out(logits_CV, logits_CV, 1, false);
  const at::Tensor picked = logits_CV.gather(1, safe_C1).squeeze(1);
  return -at::where(counted_C, picked, at::zeros({}, picked.options())).sum(at::kDouble).item<double>();
}

// Turns log probabilities into softmax - one-hot in place; rows that are not counted become 0. The caller multiplies
// them by the loss weight.
void into_gradient(at::Tensor& logp_CV, const at::Tensor& safe_C1, const at::Tensor& counted_C) {
  logp_CV.exp_();
  logp_CV.scatter_add_(1, safe_C1, at::full_like(safe_C1, -1.0, logp_CV.options()));
  if (!counted_C.all().item<bool>()) logp_CV.mul_(counted_C.unsqueeze(1));
}

// Computes the loss and its gradient by the same two steps where ranks share the vocabulary.
class SharedSoftmax {
 public:
  SharedSoftmax(const SharedVocabulary& shared, const at::Tensor& targets_C, int64_t own_words)
      : shared_(shared), counted_(targets_C >= 0) {
    const at::Tensor local = targets_C - shared.first;
    own_ = counted_.logical_and(local >= 0).logical_and_(local < own_words);
    safe_ = at::where(own_, local, at::zeros({}, local.options())).unsqueeze(1);
  }

  // Turns logits into exp(logit - this rank's maximum) in place, and returns the sum of the token losses, fp64.
  at::Tensor loss(at::Tensor& logits_CV) {
    const int64_t C = logits_CV.size(0);
    const at::Tensor own_stats = at::empty({3, C}, logits_CV.options());
    at::Tensor maximum = own_stats.select(0, 0), sum = own_stats.select(0, 1), picked = own_stats.select(0, 2);
    at::amax_out(maximum, logits_CV, {1});
    picked.copy_(at::where(own_, logits_CV.gather(1, safe_).squeeze(1), at::zeros({}, logits_CV.options())));
    logits_CV.sub_(maximum.unsqueeze(1)).exp_();
    at::sum_out(sum, logits_CV, at::IntArrayRef{1});
    const at::Tensor all_stats = at::empty({shared_.ranks->size(), 3, C}, logits_CV.options());
    shared_.ranks->all_gather(own_stats, all_stats, {.name = "parts of the loss"});
    const at::Tensor stats = all_stats.to(at::kDouble), maxima = stats.select(1, 0);
    const at::Tensor largest = maxima.amax(0);
    const at::Tensor total = (stats.select(1, 1) * (maxima - largest).exp()).sum(0);
    scale_ = (maximum.to(at::kDouble) - largest).exp() / total;
    const at::Tensor losses = largest + total.log() - stats.select(1, 2).sum(0);
    return at::where(counted_, losses, at::zeros({}, losses.options())).sum();
  }

  // Turns what loss() has left into weight * (softmax - one-hot) in place; rows that are not counted become 0.
  void into_gradient(at::Tensor& exp_CV, double weight) const {
    const at::Tensor factor = (scale_ * weight * counted_).to(exp_CV.scalar_type()).unsqueeze(1);
    exp_CV.mul_(factor);
    exp_CV.scatter_add_(1, safe_, (own_ * -weight).to(exp_CV.scalar_type()).unsqueeze(1));
  }

 private:
  SharedVocabulary shared_;
  at::Tensor counted_;     // rows with a target
  at::Tensor own_, safe_;  // rows whose target is in this rank's part, and its index there; 0 in other rows
  at::Tensor scale_;       // factor of each row from exp(logit - this rank's maximum) to the softmax
};

// Computes logits = n W^T, and dn = dlogits W, from fp32 copies of W piece by piece.
void products_in_fp32(at::Tensor& logits_CV, const at::Tensor& n_CD, const at::Tensor& w_VD) {
  const at::Tensor n = exact(n_CD);
  by_pieces(w_VD.size(0), [&](int64_t begin, int64_t count) {
    at::Tensor piece = logits_CV.narrow(1, begin, count);
    at::mm_out(piece, n, exact(w_VD.narrow(0, begin, count)).t());
  });
}
at::Tensor products_in_fp32(const at::Tensor& dlogits_CV, const at::Tensor& w_VD) {
  at::Tensor dn = at::zeros({dlogits_CV.size(0), w_VD.size(1)}, dlogits_CV.options());
  by_pieces(w_VD.size(0), [&](int64_t begin, int64_t count) {
    dn.addmm_(dlogits_CV.narrow(1, begin, count), exact(w_VD.narrow(0, begin, count)));
  });
  return dn;
}

// Turns logits into their gradient on a device, and adds their loss and number to sum and counted.
void device_loss(const at::Tensor& logits_CV, const at::Tensor& targets_C, const CrossEntropyOptions& options,
                 const at::Tensor& sum, const at::Tensor& counted) {
  const at::Tensor row_losses = at::empty({logits_CV.size(0)}, sum.options());
  kernels_of(logits_CV).cross_entropy(on_stream(logits_CV), {.type = dtype_of(logits_CV.scalar_type()),
                                                             .rows = logits_CV.size(0),
                                                             .words = logits_CV.size(1),
                                                             .logits = logits_CV.mutable_data_ptr(),
                                                             .targets = targets_C.const_data_ptr<int64_t>(),
                                                             .weight = static_cast<float>(options.loss_weight),
                                                             .with_gradients = options.with_gradients,
                                                             .loss = sum.mutable_data_ptr<double>(),
                                                             .counted = counted.mutable_data_ptr<int64_t>(),
                                                             .row_losses = row_losses.mutable_data_ptr<double>()});
}

// Adds the sums over the rows of the logits' gradient. Rows of 16 bits are converted a few at a time.
void add_bias_gradient(Parameter& bias_V, const at::Tensor& dlogits_NV) {
  if (bias_V.frozen()) return;
  constexpr int64_t kConvertedRows = 64;
  const bool is_fp32 = dlogits_NV.scalar_type() == at::kFloat;
  const at::Tensor sum = at::zeros({dlogits_NV.size(1)}, dlogits_NV.options().dtype(at::kFloat));
  by_pieces(
      dlogits_NV.size(0),
      [&](int64_t begin, int64_t count) { sum.add_(dlogits_NV.narrow(0, begin, count).sum(0, false, at::kFloat)); },
      is_fp32 ? std::max<int64_t>(1, dlogits_NV.size(0)) : kConvertedRows);
  bias_V.add_gradient(sum);
}

}  // namespace

CrossEntropyResult chunked_cross_entropy(const at::Tensor& n_ND, Parameter& weight_VD, const at::Tensor& targets,
                                         const CrossEntropyOptions& options) {
  at::NoGradGuard no_grad;
  const int64_t N = n_ND.size(0), V = weight_VD.spec().sizes[0];
  HERD_CHECK_EQ(targets.numel(), N);
  const SharedVocabulary& shared = options.shared;
  check_targets(targets, shared.ranks != nullptr ? shared.words : V);
  const bool in_fp32 = multiplies_in_fp32(n_ND);
  const at::Tensor w_VD = weight_VD.value().detach(), counted = targets >= 0, safe = targets.clamp_min(0).unsqueeze(1);
  // Every rank takes the longest part of the vocabulary, so that all ranks make as many chunks.
  const int64_t most_words =
      shared.ranks != nullptr ? (shared.words + shared.ranks->size() - 1) / shared.ranks->size() : V;
  const int64_t row_bytes = most_words * static_cast<int64_t>(sizeof(float));
  const int64_t chunk_bytes = options.chunk_bytes > 0 ? options.chunk_bytes : int64_t{n_ND.is_cpu() ? 64 : 512} << 20;
  const int64_t max_rows = std::clamp<int64_t>(chunk_bytes / row_bytes, 1, std::max<int64_t>(N, 1));
  const int64_t chunks = (N + max_rows - 1) / std::max<int64_t>(max_rows, 1);

  CrossEntropyResult result;
  const bool on_cpu = n_ND.is_cpu();
  const at::Tensor sum = at::zeros({}, n_ND.options().dtype(at::kDouble));  // of a device
  const at::Tensor num_counted = on_cpu || shared.ranks != nullptr ? counted.sum() : at::zeros_like(sum, at::kLong);
  if (on_cpu) result.count = num_counted.item<int64_t>();
  if (options.with_gradients) result.dn_ND = at::empty_like(n_ND);
  const int64_t chunk_rows = chunks == 0 ? 0 : (N + chunks - 1) / chunks;
  const bool is_16_bit = n_ND.scalar_type() != at::kFloat;
  DeferredGradients* deferred = options.with_gradients ? options.deferred : nullptr;
  const at::Tensor all_products = at::empty({deferred != nullptr ? N : chunk_rows, V}, n_ND.options());
  const bool widens = is_16_bit && (on_cpu || shared.ranks != nullptr);  // a device's kernel widens by itself
  const at::Tensor wide_buffer = widens ? at::empty({chunk_rows, V}, n_ND.options().dtype(at::kFloat)) : at::Tensor();
  for (int64_t i = 0; i < chunks; ++i) {
    const int64_t begin = N * i / chunks, size = N * (i + 1) / chunks - begin;
    const at::Tensor n = n_ND.narrow(0, begin, size), safe_C1 = safe.narrow(0, begin, size),
                     counted_C = counted.narrow(0, begin, size);
    at::Tensor products = all_products.narrow(0, deferred != nullptr ? begin : 0, size);
    at::Tensor logits = widens ? wide_buffer.narrow(0, 0, size) : products;
    if (in_fp32) {
      products_in_fp32(logits, n, w_VD);
    } else {
      at::mm_out(products, n, w_VD.t());
      if (widens) logits.copy_(products);
    }
    if (options.bias_V != nullptr) logits.add_(options.bias_V->value().detach());
    if (shared.ranks != nullptr) {
      SharedSoftmax softmax(shared, targets.narrow(0, begin, size), V);
      const at::Tensor loss = softmax.loss(logits);
      if (on_cpu)
        result.sum += loss.item<double>();
      else
        sum.add_(loss);
      if (options.with_gradients) softmax.into_gradient(logits, options.loss_weight);
    } else if (!on_cpu) {
      device_loss(logits, targets.narrow(0, begin, size), options, sum, num_counted);
    } else {
      result.sum += log_softmax_loss(logits, safe_C1, counted_C);
      if (options.with_gradients) {
        into_gradient(logits, safe_C1, counted_C);
        logits.mul_(options.loss_weight);
      }
    }
    if (!options.with_gradients) continue;
    if (widens) products.copy_(logits);
    at::Tensor dn = result.dn_ND.narrow(0, begin, size);
    if (in_fp32)
      dn.copy_(products_in_fp32(logits, w_VD));
    else
      at::mm_out(dn, products, w_VD);
    if (deferred != nullptr) continue;
    add_weight_gradient(weight_VD, products, n);
    if (options.bias_V != nullptr) add_bias_gradient(*options.bias_V, products);
  }
  if (!on_cpu) result.on_device = at::stack({sum, num_counted.to(at::kDouble)});
  if (deferred != nullptr)
    deferred->add([all_products, n_ND, &weight_VD, bias_V = options.bias_V] {
      add_weight_gradient(weight_VD, all_products, n_ND);
      if (bias_V != nullptr) add_bias_gradient(*bias_V, all_products);
    });
  return result;
}

}  // namespace herd::nn
