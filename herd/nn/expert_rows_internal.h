// Orders rows of a token and an expert by expert, and adds up the rows of each token, on a CPU or another device.
//   N tokens, k experts of each, E experts, P rows: N*k, less those of choices that are dropped (router.h).
// Threads: torch's; pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace herd::nn {

inline constexpr int64_t kTokensOfThread = 64;  // so many tokens at least make a thread of their own worthwhile

// Lists rows by expert, and by token within one.
struct RowOrder {
  at::Tensor tokens_P;  // int64: token of each row
  at::Tensor rows_Nk;   // int64: row of each choice; -1 = it is dropped
  at::Tensor begins;    // int64, E + 1, on the host: first row of each expert, and the number of rows
  // Returns it with the tokens and the rows on a device, where these are read.
  RowOrder on(at::Device device) const { return {tokens_P.to(device), rows_Nk.to(device), begins}; }
};

// REQUIRES choices on the host.
RowOrder order_rows(const at::Tensor& experts_Nk, int64_t E);

// Orders numbers of choices, fp32, as their P rows, and back; a choice that is dropped gets 0.
at::Tensor by_rows(const at::Tensor& values_Nk, const at::Tensor& rows_Nk, int64_t P);
at::Tensor by_choices(const at::Tensor& values_P, const at::Tensor& rows_Nk);

// Adds the k rows of each token in fp32, in the order of its choices, times their weights where there are any.
at::Tensor sum_of_tokens(const at::Tensor& values_PD, const at::Tensor& rows_Nk, const at::Tensor& weights_Nk);

}  // namespace herd::nn
