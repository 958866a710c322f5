// Normalises each channel by the mean and variance of the batches of all ranks, as torch's SyncBatchNorm does, so that
// a network with small batches a rank trains as one process does on the whole batch.
//
//   auto statistics = comm.split(0, comm.rank(), "batch norm");   // a group of its own never waits for gradients
//   norm = register_module("norm", herd::SyncBatchNorm(64, statistics));
//
// A forward in training gathers (mean, sum of squared deviations, count) of each channel, and its backward sums two
// figures of each: both are collective over the group, also where a rank's batch is empty. Out of training, or with one
// rank, it is torch::nn::BatchNorm and sends nothing.
// Source: Ioffe and Szegedy 2015, arXiv:1502.03167; the combination of moments is that of Chan, Golub and LeVeque 1983.
// Threads: as the module's caller; one at a time.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "herd/comm/communicator.h"

namespace herd::ddp {

class SyncBatchNormImpl : public torch::nn::BatchNormImplBase<1, SyncBatchNormImpl> {
  using Base = torch::nn::BatchNormImplBase<1, SyncBatchNormImpl>;

 public:
  // Shares the group of `comm`, which may end before this. The parameters and buffers are those of torch's BatchNorm.
  SyncBatchNormImpl(const torch::nn::BatchNormOptions& given, Communicator& comm)
      : Base(given), comm_(std::make_shared<Communicator>(comm.share())) {}

  // x is [samples, channels, ...]; returns the same shape. Throws kBadConfig for another number of channels, and in
  // training where all ranks together have fewer than two values of a channel.
  at::Tensor forward(const at::Tensor& x);

 protected:
  void _check_input_dim(const at::Tensor& x) override;

 private:
  std::shared_ptr<Communicator> comm_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace herd::ddp

namespace herd {
using ddp::SyncBatchNorm;
}  // namespace herd
