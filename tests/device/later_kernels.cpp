// herd's kernels on the device "later": those of the CPU, once the stream gets there.
#include "herd/kernels/host_kernels.h"
#include "tests/device/later_torch.h"

namespace herd::later {
namespace {

using namespace kernels;

class Kernels final : public DeviceKernels {
 public:
  void rms_norm(const OnStream& on, const RmsNormCall& call) override { enqueue(&DeviceKernels::rms_norm, on, call); }
  void rms_norm_backward(const OnStream& on, const RmsNormBackwardCall& call) override {
    enqueue(&DeviceKernels::rms_norm_backward, on, call);
  }
  void dropout(const OnStream& on, const DropoutCall& call) override { enqueue(&DeviceKernels::dropout, on, call); }
  void adamw(const OnStream& on, const AdamWCall& call) override { enqueue(&DeviceKernels::adamw, on, call); }
  void sgd(const OnStream& on, const SgdCall& call) override { enqueue(&DeviceKernels::sgd, on, call); }
  void sum_of_squares(const OnStream& on, const SumOfSquaresCall& call) override {
    enqueue(&DeviceKernels::sum_of_squares, on, call);
  }
  void clip(const OnStream& on, const ClipCall& call) override { enqueue(&DeviceKernels::clip, on, call); }
  void first_non_finite(const OnStream& on, const FirstNonFiniteCall& call) override {
    enqueue(&DeviceKernels::first_non_finite, on, call);
  }
  void hash(const OnStream& on, const HashCall& call) override { enqueue(&DeviceKernels::hash, on, call); }
  void split_float(const OnStream& on, const SplitFloatCall& call) override {
    enqueue(&DeviceKernels::split_float, on, call);
  }
  void join_float(const OnStream& on, const JoinFloatCall& call) override {
    enqueue(&DeviceKernels::join_float, on, call);
  }
  void reduce(const OnStream& on, const ReductionCall& call) override { enqueue(&DeviceKernels::reduce, on, call); }
  void rotary(const OnStream& on, const RotaryCall& call) override { enqueue(&DeviceKernels::rotary, on, call); }
  void gated(const OnStream& on, const GatedCall& call) override { enqueue(&DeviceKernels::gated, on, call); }
  void gated_backward(const OnStream& on, const GatedBackwardCall& call) override {
    enqueue(&DeviceKernels::gated_backward, on, call);
  }
  void cross_entropy(const OnStream& on, const CrossEntropyCall& call) override {
    enqueue(&DeviceKernels::cross_entropy, on, call);
  }
  void embedding_gradient(const OnStream& on, const EmbeddingGradientCall& call) override {
    enqueue(&DeviceKernels::embedding_gradient, on, call);
  }
  void encode(const OnStream& on, const EncodeCall& call) override { enqueue(&DeviceKernels::encode, on, call); }
  void decode_sum(const OnStream& on, const DecodeSumCall& call) override {
    enqueue(&DeviceKernels::decode_sum, on, call);
  }
  void encode_sum(const OnStream& on, const EncodeSumCall& call) override {
    enqueue(&DeviceKernels::encode_sum, on, call);
  }

 private:
  template <typename OneCall>
  static void enqueue(void (DeviceKernels::*kernel)(const OnStream&, const OneCall&), const OnStream& on,
                      const OneCall& call) {
    Streams::get().enqueue(stream_of_handle(on.device, on.stream), [=] { (host_kernels().*kernel)(on, call); });
  }
};

}  // namespace

void register_kernels() { register_device_kernels(DeviceKind::kExtension, new Kernels); }

}  // namespace herd::later
