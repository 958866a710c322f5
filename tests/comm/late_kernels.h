// The one kernel that collectives on a device need, for the late device.
#pragma once

#include <vector>

#include "herd/kernels/device_kernels.h"
#include "herd/kernels/host_kernels.h"
#include "tests/comm/late_device.h"

namespace herd::testing_support {

class LateKernels final : public kernels::DeviceKernels {
 public:
  static void install() {
    static LateKernels instance;
    kernels::register_device_kernels(DeviceKind::kExtension, &instance);
  }
  void reduce(const kernels::OnStream& on, const kernels::ReductionCall& call) override {
    LateDevice& device = LateDevice::instance();
    device.run_on(on.stream, [call, &device] {
      kernels::ReductionCall real = call;
      real.target = device.real(call.target);
      for (const void*& source : real.sources) source = device.real(source);
      kernels::host_kernels().reduce({}, real);
    });
  }

  void rms_norm(const kernels::OnStream&, const kernels::RmsNormCall&) override {}
  void rms_norm_backward(const kernels::OnStream&, const kernels::RmsNormBackwardCall&) override {}
  void dropout(const kernels::OnStream&, const kernels::DropoutCall&) override {}
  void adamw(const kernels::OnStream&, const kernels::AdamWCall&) override {}
  void sgd(const kernels::OnStream&, const kernels::SgdCall&) override {}
  void sum_of_squares(const kernels::OnStream&, const kernels::SumOfSquaresCall&) override {}
  void clip(const kernels::OnStream&, const kernels::ClipCall&) override {}
  void first_non_finite(const kernels::OnStream&, const kernels::FirstNonFiniteCall&) override {}
  void hash(const kernels::OnStream&, const kernels::HashCall&) override {}
  void split_float(const kernels::OnStream&, const kernels::SplitFloatCall&) override {}
  void join_float(const kernels::OnStream&, const kernels::JoinFloatCall&) override {}
  void rotary(const kernels::OnStream&, const kernels::RotaryCall&) override {}
  void gated(const kernels::OnStream&, const kernels::GatedCall&) override {}
  void gated_backward(const kernels::OnStream&, const kernels::GatedBackwardCall&) override {}
  void cross_entropy(const kernels::OnStream&, const kernels::CrossEntropyCall&) override {}
  void embedding_gradient(const kernels::OnStream&, const kernels::EmbeddingGradientCall&) override {}
  void encode(const kernels::OnStream&, const kernels::EncodeCall&) override {}
  void decode_sum(const kernels::OnStream&, const kernels::DecodeSumCall&) override {}
  void encode_sum(const kernels::OnStream&, const kernels::EncodeSumCall&) override {}
};

}  // namespace herd::testing_support
