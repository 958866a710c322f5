#include "herd/nn/document_attention.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "herd/bridge/flash_attention.h"
#include "herd/nn/documents.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Makes a tensor of x's shape (B, H, T, d) whose heads follow each other within a token.
at::Tensor empty_by_tokens(const at::Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

// Calls visit(part) for each document, where part(t) is the document's part of a tensor (B, H, T, ..).
template <class Visit>
void for_each_document(const std::vector<int64_t>& begins, int64_t B, int64_t T, const Visit& visit) {
  for (int64_t row = 0; row < B; ++row) {
    for (const auto& [begin, count] : documents_of(begins, row, T)) {
      visit([row, begin = begin, count = count](const at::Tensor& t) {
        return t.narrow(0, row, 1).narrow(2, begin, count);
      });
    }
  }
}

struct DocumentAttention : torch::autograd::Function<DocumentAttention> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<int64_t>& begins, bool causal) {
    const at::Tensor out = empty_by_tokens(q);
    const at::Tensor log_sum =
        at::empty(q.sizes().slice(0, 3), q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
    for_each_document(begins, q.size(0), q.size(2), [&](const auto& part) {
      const AttendedRows rows = flash_attention(part(q), part(k), part(v), causal);
      part(out).copy_(rows.out);
      part(log_sum).copy_(rows.log_sum);
    });
    saved->save_for_backward({q, k, v, out, log_sum});
    saved->saved_data["begins"] = begins;
    saved->saved_data["causal"] = causal;
    return out;
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list kept = saved->get_saved_variables();
    const at::Tensor &q = kept[0], &k = kept[1], &v = kept[2], &out = kept[3], &log_sum = kept[4], &dy = gradients[0];
    const bool causal = saved->saved_data["causal"].toBool();
    const at::Tensor dq = empty_by_tokens(q), dk = empty_by_tokens(k), dv = empty_by_tokens(v);
    for_each_document(saved->saved_data["begins"].toIntVector(), q.size(0), q.size(2), [&](const auto& part) {
      const AttentionGradients own =
          flash_attention_backward(part(dy), part(q), part(k), part(v), {part(out), part(log_sum)}, causal);
      part(dq).copy_(own.dq);
      part(dk).copy_(own.dk);
      part(dv).copy_(own.dv);
    });
    return {dq, dk, dv, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor document_attention(const at::Tensor& q_BHTd, const at::Tensor& k_BKTd, const at::Tensor& v_BKTd,
                              const std::vector<int64_t>& document_begins, bool causal) {
  return DocumentAttention::apply(q_BHTd, k_BKTd, v_BKTd, document_begins, causal);
}

}  // namespace herd::nn
