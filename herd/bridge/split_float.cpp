#include "herd/bridge/split_float.h"

#include "herd/base/check.h"
#include "herd/kernels/split_float_kernel.h"

namespace herd {
namespace {

void check(const at::Tensor& exact, const at::Tensor& high, const at::Tensor& low) {
  for (const auto& [tensor, type] :
       {std::pair(exact, at::kFloat), std::pair(high, at::kBFloat16), std::pair(low, at::kShort)}) {
    HERD_CHECK(tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == type && tensor.is_contiguous(),
               "halves of fp32 numbers are bf16 and int16, all contiguous, on the CPU");
    HERD_CHECK_EQ(tensor.numel(), exact.numel());
  }
}

}  // namespace

void split_float(const at::Tensor& exact, const at::Tensor& high, const at::Tensor& low) {
  check(exact, high, low);
  kernels::split_float(exact.const_data_ptr<float>(), static_cast<uint16_t*>(high.mutable_data_ptr()),
                       static_cast<uint16_t*>(low.mutable_data_ptr()), exact.numel());
}

void join_float(const at::Tensor& high, const at::Tensor& low, const at::Tensor& exact) {
  check(exact, high, low);
  kernels::join_float(static_cast<const uint16_t*>(high.const_data_ptr()),
                      static_cast<const uint16_t*>(low.const_data_ptr()), exact.mutable_data_ptr<float>(),
                      exact.numel());
}

void round_to_upper_half(const at::Tensor& exact, const at::Tensor& high) {
  constexpr int64_t kPiece = 1 << 13;  // elements, whose low halves lie on the stack
  uint16_t low[kPiece];
  HERD_CHECK_EQ(exact.numel(), high.numel());
  for (int64_t begin = 0; begin < exact.numel(); begin += kPiece)
    kernels::split_float(exact.const_data_ptr<float>() + begin, static_cast<uint16_t*>(high.mutable_data_ptr()) + begin,
                         low, std::min(kPiece, exact.numel() - begin));
}

}  // namespace herd
