#include "herd/nn/context_parts.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "herd/base/check.h"
#include "herd/nn/documents.h"
#include "herd/nn/linear.h"
#include "herd/nn/ring_attention.h"

namespace herd::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<int64_t> inverse_of(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return inverse;
}

// Puts dimensions in another order, and its gradient back, each in memory of that order. torch's own function leaves
// gradients in the other order, for whoever reads them to copy.
struct Reorder : torch::autograd::Function<Reorder> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::vector<int64_t>& order) {
    context->saved_data["inverse"] = inverse_of(order);
    return x.permute(order).contiguous();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {gradients[0].permute(context->saved_data["inverse"].toIntVector()).contiguous(), at::Tensor()};
  }
};

at::Tensor reordered(const at::Tensor& x, std::vector<int64_t> order) { return Reorder::apply(x, std::move(order)); }

// As above, of the input of a block. Its graph then holds the result alone: run_forward() gives a block a leaf of its
// own, whose memory goes here. Without a graph the tensor is the caller's.
at::Tensor reordered_input(const at::Tensor& x, std::vector<int64_t> order) {
  at::Tensor y = reordered(x, std::move(order));
  if (x.requires_grad() && x.is_leaf()) x.set_data(at::empty({0}, x.options().requires_grad(false)));
  return y;
}

// Returns (P, B, S, W) of q, k and v, each (B, S, heads * d): what the heads of each rank need of them.
at::Tensor by_rank(const Tuple& q_k_v, int64_t P, int64_t d) {
  const int64_t B = q_k_v[0].size(0), S = q_k_v[0].size(1);
  Tuple slices;
  for (const at::Tensor& part : q_k_v) {
    const int64_t copies = std::max<int64_t>(1, P / (part.size(-1) / d));  // ranks that need the same key head
    const at::Tensor copied =
        copies == 1 ? part : part.reshape({B, S, -1, 1, d}).expand({B, S, -1, copies, d}).reshape({B, S, -1});
    slices.push_back(copied.reshape({B, S, P, -1}).permute({2, 0, 1, 3}));
  }
  return at::cat(slices, -1).contiguous();
}

// Turns the first `heads` heads of this rank's tokens by their positions in their documents.
at::Tensor rotate_own_tokens(const at::Tensor& x_BSC, const at::Tensor& frequencies, int64_t heads,
                             const Context& context) {
  if (context.document_begins.empty()) return rotate_heads(x_BSC, frequencies, heads, context.cut.spans());
  return rotate_heads_by_row(x_BSC, frequencies, heads, document_positions(context, x_BSC.size(0), context.cut));
}

}  // namespace

HeadProjection::HeadProjection(std::string name, GroupList groups, const AttentionParameters& parameters,
                               const TransformerShape& shape, const HeadPart& part, int ranks)
    : Block(std::move(name), std::move(groups)),
      parameters_(parameters),
      attention_(part.of(shape)),
      head_width_(shape.width_of_head()),
      ranks_(ranks) {}

Tuple HeadProjection::forward(const Tuple& n_BSD, const Context& context) {
  const at::Tensor& rows = n_BSD.at(0);
  const int64_t H = attention_.heads, K = attention_.kv_heads, d = head_width_, P = ranks_, S = context.cut.size();
  const at::Tensor n = rows.dim() == 3 ? rows : rows.view({S == 0 ? 0 : rows.size(0) / S, S, rows.size(1)});
  at::Tensor product = linear(n, parameters_.qkv_weight, parameters_.qkv_bias);
  if (parameters_.kv_weight != nullptr)
    product = at::cat({product, linear(n, *parameters_.kv_weight, parameters_.kv_bias)}, -1);
  product = normalise_heads(product, parameters_.norms, H, K);
  if (attention_.rotary.defined()) product = rotate_own_tokens(product, attention_.rotary, H + K, context);
  if (P == 1) return {product.unsqueeze(0)};
  const Tuple parts = product.split_with_sizes({H * d, K * d, K * d}, -1);
  product = at::Tensor();
  return {by_rank(parts, P, d)};
}

HeadOutput::HeadOutput(std::string name, GroupList groups, Parameter& weight, Parameter* bias, bool gives_rows)
    : Block(std::move(name), std::move(groups)), weight_(weight), bias_(bias), gives_rows_(gives_rows) {}

Tuple HeadOutput::forward(const Tuple& y_PBSA, const Context&) {
  const at::Tensor y = reordered_input(y_PBSA.at(0), {1, 2, 0, 3});
  const int64_t B = y.size(0), S = y.size(1), A = y.size(2) * y.size(3);
  return {linear(gives_rows_ ? y.view({B * S, A}) : y.view({B, S, A}), weight_, bias_)};
}

HeadAttention::HeadAttention(std::string name, const TransformerShape& shape, int ranks, const HeadPart& part)
    : Block(std::move(name), {}),
      attention_(HeadPart{part.ranks * ranks, part.place * ranks}.of(shape)),
      head_width_(shape.width_of_head()) {}

Tuple HeadAttention::forward(const Tuple& qkv_PBSW, const Context& context) {
  const at::Tensor& qkv = qkv_PBSW.at(0);
  const int64_t P = qkv.size(0), B = qkv.size(1), S = qkv.size(2), W = qkv.size(3), T = context.cut.tokens;
  HERD_CHECK_EQ(P, context.cut.parts);
  const int64_t H = attention_.heads, K = attention_.kv_heads, d = head_width_;
  const at::ScalarType type = qkv.scalar_type();
  Tuple heads = reordered_input(qkv, {1, 0, 2, 3})
                    .view({B, P * S, W})
                    .narrow(1, 0, T)  // without padding
                    .split_with_sizes({H * d, K * d, K * d}, -1);
  for (at::Tensor& part : heads) part = part.view({B, T, -1, d}).transpose(1, 2);
  AttentionShape shape = attention_;
  shape.first_head += context.cut.place * H;
  at::Tensor y = attend(heads[0], heads[1], heads[2], shape, context).transpose(1, 2).reshape({B, T, H * d});
  heads.clear();
  y = y.to(type);
  if (P * S > T) y = at::constant_pad_nd(y, {0, 0, 0, P * S - T});
  return {reordered(y.view({B, P, S, H * d}), {1, 0, 2, 3})};
}

RingAttention::RingAttention(std::string name, const TransformerShape& shape, const HeadPart& part)
    : Block(std::move(name), {}), attention_(part.of(shape)) {}

Tuple RingAttention::forward(const Tuple& qkv_1BSW, const Context& context) {
  return {ring_attention(qkv_1BSW.at(0).squeeze(0), attention_, context).unsqueeze(0)};
}

}  // namespace herd::nn
