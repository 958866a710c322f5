#include "herd/optim/optimizer.h"

#include "herd/base/check.h"

namespace herd::optim {
namespace {

void check_tensor(const at::Tensor& tensor, int64_t count, const char* what) {
  HERD_CHECK(tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous(),
             std::string(what) + " of an optimizer step must be fp32, contiguous, on the CPU");
  HERD_CHECK_EQ(tensor.numel(), count);
}

}  // namespace

void Optimizer::step(const Shard& shard, const StepOptions& options) const {
  const int64_t count = shard.weights.numel();
  check_tensor(shard.weights, count, "weights");
  check_tensor(shard.gradient, count, "gradient");
  HERD_CHECK_EQ(static_cast<int>(shard.states.size()), num_states());
  std::vector<float*> states;
  for (const at::Tensor& state : shard.states) {
    check_tensor(state, count, "state");
    states.push_back(state.mutable_data_ptr<float>());
  }
  step_raw({shard.weights.mutable_data_ptr<float>(), shard.gradient.const_data_ptr<float>(), states, count,
            shard.offset, shard.decay},
           options);
}

void append_range(std::vector<kernels::ElementRange>& ranges, int64_t begin, int64_t end) {
  if (begin == end) return;
  HERD_CHECK_LT(begin, end);
  if (!ranges.empty()) HERD_CHECK_LE(ranges.back().end, begin);
  if (!ranges.empty() && ranges.back().end == begin) {
    ranges.back().end = end;
  } else {
    ranges.push_back({begin, end});
  }
}

}  // namespace herd::optim
