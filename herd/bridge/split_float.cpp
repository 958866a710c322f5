#include "herd/bridge/split_float.h"

#include "herd/base/check.h"
#include "herd/bridge/device_stream.h"
#include "herd/kernels/split_float_kernel.h"

namespace herd {
namespace {

void check(const at::Tensor& exact, const at::Tensor& high, const at::Tensor& low) {
  for (const auto& [tensor, type] :
       {std::pair(exact, at::kFloat), std::pair(high, at::kBFloat16), std::pair(low, at::kShort)}) {
    HERD_CHECK(
        tensor.defined() && tensor.device() == exact.device() && tensor.scalar_type() == type && tensor.is_contiguous(),
        "halves of fp32 numbers are bf16 and int16, all contiguous, on one device");
    HERD_CHECK_EQ(tensor.numel(), exact.numel());
  }
}

void split_on_device(const at::Tensor& exact, const at::Tensor& high, uint16_t* low) {
  kernels_of(exact).split_float(on_stream(exact), {.exact = exact.const_data_ptr<float>(),
                                                   .high = static_cast<uint16_t*>(high.mutable_data_ptr()),
                                                   .low = low,
                                                   .count = exact.numel()});
}

}  // namespace

void split_float(const at::Tensor& exact, const at::Tensor& high, const at::Tensor& low) {
  check(exact, high, low);
  if (!exact.is_cpu()) return split_on_device(exact, high, static_cast<uint16_t*>(low.mutable_data_ptr()));
  kernels::split_float(exact.const_data_ptr<float>(), static_cast<uint16_t*>(high.mutable_data_ptr()),
                       static_cast<uint16_t*>(low.mutable_data_ptr()), exact.numel());
}

void join_float(const at::Tensor& high, const at::Tensor& low, const at::Tensor& exact) {
  check(exact, high, low);
  if (!exact.is_cpu()) {
    return kernels_of(exact).join_float(on_stream(exact), {.high = static_cast<const uint16_t*>(high.const_data_ptr()),
                                                           .low = static_cast<const uint16_t*>(low.const_data_ptr()),
                                                           .exact = exact.mutable_data_ptr<float>(),
                                                           .count = exact.numel()});
  }
  kernels::join_float(static_cast<const uint16_t*>(high.const_data_ptr()),
                      static_cast<const uint16_t*>(low.const_data_ptr()), exact.mutable_data_ptr<float>(),
                      exact.numel());
}

void round_to_upper_half(const at::Tensor& exact, const at::Tensor& high) {
  constexpr int64_t kPiece = 1 << 13;  // elements, whose low halves lie on the stack
  uint16_t low[kPiece];
  HERD_CHECK_EQ(exact.numel(), high.numel());
  if (!exact.is_cpu()) return split_on_device(exact, high, nullptr);
  for (int64_t begin = 0; begin < exact.numel(); begin += kPiece)
    kernels::split_float(exact.const_data_ptr<float>() + begin, static_cast<uint16_t*>(high.mutable_data_ptr()) + begin,
                         low, std::min(kPiece, exact.numel() - begin));
}

}  // namespace herd
