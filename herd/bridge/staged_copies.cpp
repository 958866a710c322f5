#include "herd/bridge/staged_copies.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "herd/bridge/host_memory.h"

namespace herd {
namespace {

constexpr int64_t kBlockBytes = 1 << 20, kAlignment = 64;

}  // namespace

at::Tensor StagedCopies::copy(const at::Tensor& from) {
  const auto bytes = static_cast<int64_t>(from.nbytes());
  at::Tensor to = at::empty(from.sizes(), from.options().device(device_));
  if (bytes == 0) return to;
  const at::Tensor staged = take(bytes).view(from.scalar_type()).view(from.sizes());
  staged.copy_(from);
  return to.copy_(staged, /*non_blocking=*/true);
}

at::Tensor StagedCopies::take(int64_t bytes) {
  const int64_t aligned = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  while (block_ < blocks_.size() && blocks_[block_].numel() - filled_ < aligned) ++block_, filled_ = 0;
  if (block_ == blocks_.size()) blocks_.push_back(host_zeros(std::max(aligned, kBlockBytes), at::kByte, device_));
  const at::Tensor taken = blocks_[block_].narrow(0, filled_, bytes);
  filled_ += aligned;
  return taken;
}

void StagedCopies::reuse() { block_ = 0, filled_ = 0; }

}  // namespace herd
