#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "herd/nn/expert_rows_internal.h"
#include "herd/nn/router.h"

namespace herd::nn {
namespace {

// By operators of torch, which every device has. A choice that is dropped goes to a row of its own, after the others.
at::Tensor by_rows_on_device(const at::Tensor& values_Nk, const at::Tensor& rows_Nk, int64_t P) {
  const at::Tensor rows = at::where(rows_Nk.lt(0), P, rows_Nk).flatten();
  return at::empty({P + 1}, values_Nk.options()).scatter_(0, rows, values_Nk.flatten()).narrow(0, 0, P);
}

at::Tensor by_choices_on_device(const at::Tensor& values_P, const at::Tensor& rows_Nk) {
  if (values_P.numel() == 0) return at::zeros(rows_Nk.sizes(), values_P.options());
  return values_P.index_select(0, rows_Nk.clamp_min(0).flatten()).view(rows_Nk.sizes()).mul_(rows_Nk.ge(0));
}

at::Tensor sum_of_tokens_on_device(const at::Tensor& values_PD, const at::Tensor& rows_Nk,
                                   const at::Tensor& weights_Nk) {
  const at::Tensor sums = at::zeros({rows_Nk.size(0), values_PD.size(1)}, values_PD.options().dtype(at::kFloat));
  if (values_PD.size(0) == 0) return sums.to(values_PD.scalar_type());
  for (int64_t j = 0; j < rows_Nk.size(1); ++j) {
    const at::Tensor rows = rows_Nk.select(1, j);
    at::Tensor weights = rows.ge(0).to(at::kFloat);
    if (weights_Nk.defined()) weights.mul_(weights_Nk.select(1, j));
    sums.addcmul_(values_PD.index_select(0, rows.clamp_min(0)).to(at::kFloat), weights.unsqueeze(1));
  }
  return sums.to(values_PD.scalar_type());
}

}  // namespace

RowOrder order_rows(const at::Tensor& experts_Nk, int64_t E) {
  const int64_t N = experts_Nk.size(0), k = experts_Nk.size(1);
  RowOrder out{{}, at::empty({N, k}, experts_Nk.options()), at::zeros({E + 1}, experts_Nk.options())};
  const int64_t* experts = experts_Nk.const_data_ptr<int64_t>();
  int64_t *rows = out.rows_Nk.mutable_data_ptr<int64_t>(), *begins = out.begins.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < N * k; ++i)
    if (!is_dropped(experts[i])) ++begins[experts[i] + 1];
  for (int64_t e = 0; e < E; ++e) begins[e + 1] += begins[e];
  out.tokens_P = at::empty({begins[E]}, experts_Nk.options());
  int64_t* tokens = out.tokens_P.mutable_data_ptr<int64_t>();
  std::vector<int64_t> next(begins, begins + E);
  for (int64_t i = 0; i < N * k; ++i) {
    rows[i] = -1;
    if (is_dropped(experts[i])) continue;
    const int64_t row = next[static_cast<size_t>(experts[i])]++;
    tokens[row] = i / k;
    rows[i] = row;
  }
  return out;
}

at::Tensor by_rows(const at::Tensor& values_Nk, const at::Tensor& rows_Nk, int64_t P) {
  if (!values_Nk.is_cpu()) return by_rows_on_device(values_Nk, rows_Nk, P);
  const at::Tensor out = at::empty({P}, values_Nk.options()), values = values_Nk.contiguous();
  const int64_t* rows = rows_Nk.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < rows_Nk.numel(); ++i)
    if (rows[i] >= 0) out.mutable_data_ptr<float>()[rows[i]] = values.const_data_ptr<float>()[i];
  return out;
}

at::Tensor by_choices(const at::Tensor& values_P, const at::Tensor& rows_Nk) {
  if (!values_P.is_cpu()) return by_choices_on_device(values_P, rows_Nk);
  const at::Tensor out = at::empty(rows_Nk.sizes(), values_P.options());
  const int64_t* rows = rows_Nk.const_data_ptr<int64_t>();
  const float* values = values_P.const_data_ptr<float>();
  for (int64_t i = 0; i < rows_Nk.numel(); ++i) out.mutable_data_ptr<float>()[i] = rows[i] < 0 ? 0.0F : values[rows[i]];
  return out;
}

at::Tensor sum_of_tokens(const at::Tensor& values_PD, const at::Tensor& rows_Nk, const at::Tensor& weights_Nk) {
  if (!values_PD.is_cpu()) return sum_of_tokens_on_device(values_PD, rows_Nk, weights_Nk);
  const int64_t N = rows_Nk.size(0), k = rows_Nk.size(1), D = values_PD.size(1);
  const at::Tensor out = at::empty({N, D}, values_PD.options());
  const int64_t* rows = rows_Nk.const_data_ptr<int64_t>();
  const float* weights = weights_Nk.defined() ? weights_Nk.const_data_ptr<float>() : nullptr;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, values_PD.scalar_type(), "sum_of_tokens", [&] {
    const scalar_t* values = values_PD.const_data_ptr<scalar_t>();
    scalar_t* sums = out.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, N, kTokensOfThread, [&](int64_t begin, int64_t end) {
      std::vector<float> sum(static_cast<size_t>(D));
      for (int64_t n = begin; n < end; ++n) {
        std::fill(sum.begin(), sum.end(), 0.0F);
        for (int64_t j = 0; j < k; ++j) {
          if (rows[n * k + j] < 0) continue;
          const scalar_t* row = values + rows[n * k + j] * D;
          const float weight = weights == nullptr ? 1.0F : weights[n * k + j];
          for (int64_t d = 0; d < D; ++d) sum[static_cast<size_t>(d)] += weight * static_cast<float>(row[d]);
        }
        for (int64_t d = 0; d < D; ++d) sums[n * D + d] = static_cast<scalar_t>(sum[static_cast<size_t>(d)]);
      }
    });
  });
  return out;
}

}  // namespace herd::nn
