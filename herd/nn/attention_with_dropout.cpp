#include "herd/nn/attention_with_dropout.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "herd/nn/documents.h"
#include "herd/nn/dropout.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Multiplies x (B, H, ..) by the matrix of each key head (B, K, ..). Query heads that share a key head are rows of one
// product. The matrices are copied, so that autograd keeps the copy and not the tensor of which they are a part.
at::Tensor times_shared(const at::Tensor& x, const at::Tensor& matrices) {
  const int64_t B = x.size(0), H = x.size(1), T = x.size(2), K = matrices.size(1);
  return at::matmul(x.reshape({B, K, H / K * T, x.size(3)}), matrices.contiguous()).view({B, H, T, matrices.size(3)});
}

// Returns -infinity where a token may not look, else 0: (T, T), or (B, 1, T, T) of packed sequences.
at::Tensor mask_of(int64_t B, int64_t T, bool causal, const std::vector<int64_t>& document_begins,
                   const at::TensorOptions& as) {
  const bool is_packed = !document_begins.empty();
  const std::vector<int64_t> sizes = is_packed ? std::vector<int64_t>{B, 1, T, T} : std::vector<int64_t>{T, T};
  const at::Tensor mask = causal ? at::full(sizes, -INFINITY, as).triu_(1) : at::zeros(sizes, as);
  for (int64_t row = 0; is_packed && row < B; ++row) {
    for (const auto& [begin, count] : documents_of(document_begins, row, T)) {
      const at::Tensor of_document = mask.select(0, row).narrow(1, begin, count);
      of_document.narrow(2, 0, begin).fill_(-INFINITY);
      of_document.narrow(2, begin + count, T - begin - count).fill_(-INFINITY);
    }
  }
  return mask;
}

// Returns softmax(q k^T / sqrt(d)) (B, H, T, T).
at::Tensor attention_weights(const at::Tensor& q, const at::Tensor& k, bool causal,
                             const std::vector<int64_t>& document_begins) {
  at::Tensor scores = times_shared(q * (1 / std::sqrt(static_cast<double>(q.size(3)))), k.transpose(-2, -1));
  if (causal || !document_begins.empty())
    scores = scores + mask_of(q.size(0), q.size(2), causal, document_begins, scores.options());
  return at::softmax(scores, -1);
}

at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionDropout& options, const Context& context) {
  const int64_t first_element = options.first_head * q.size(2) * k.size(2);
  return times_shared(dropout(attention_weights(q, k, options.causal, context.document_begins), options.probability,
                              DropoutSite::kAttention, context, first_element),
                      v);
}

// Saves the options, what dropout derives its random numbers from, and where documents begin.
void save(AutogradContext* to, const AttentionDropout& options, const Context& context) {
  to->saved_data["causal"] = options.causal;
  to->saved_data["first_head"] = options.first_head;
  to->saved_data["probability"] = options.probability;
  to->saved_data["seed"] = static_cast<int64_t>(context.seed);
  to->saved_data["step"] = context.step;
  to->saved_data["layer"] = static_cast<int64_t>(context.layer);
  to->saved_data["samples"] = context.samples;
  to->saved_data["documents"] = context.document_begins;
}

// Keeps q, k and v only; backward computes the attention again, with the same dropout.
struct RecomputedAttention : torch::autograd::Function<RecomputedAttention> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionDropout& options, const Context& context) {
    saved->save_for_backward({q, k, v});
    save(saved, options, context);
    return plain_attention(q, k, v, options, context);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& dy) {
    const AttentionDropout options{.causal = saved->saved_data["causal"].toBool(),
                                   .probability = saved->saved_data["probability"].toDouble(),
                                   .first_head = saved->saved_data["first_head"].toInt()};
    const Context context{.training = true,
                          .seed = static_cast<uint64_t>(saved->saved_data["seed"].toInt()),
                          .step = saved->saved_data["step"].toInt(),
                          .samples = saved->saved_data["samples"].toIntVector(),
                          .layer = static_cast<int>(saved->saved_data["layer"].toInt()),
                          .document_begins = saved->saved_data["documents"].toIntVector()};
    variable_list inputs;
    for (const at::Tensor& tensor : saved->get_saved_variables()) inputs.push_back(tensor.detach().requires_grad_());
    at::AutoGradMode with_grad(true);
    const at::Tensor y = plain_attention(inputs[0], inputs[1], inputs[2], options, context);
    variable_list gradients = torch::autograd::grad({y}, inputs, {dy[0]});
    gradients.resize(5);  // options and context have no gradient
    return gradients;
  }
};

}  // namespace

at::Tensor attention_with_dropout(const at::Tensor& q_BHTd, const at::Tensor& k_BKTd, const at::Tensor& v_BKTd,
                                  const AttentionDropout& options, const Context& context) {
  if (options.recompute && at::GradMode::is_enabled())
    return RecomputedAttention::apply(q_BHTd, k_BKTd, v_BKTd, options, context);
  return plain_attention(q_BHTd, k_BKTd, v_BKTd, options, context);
}

}  // namespace herd::nn
