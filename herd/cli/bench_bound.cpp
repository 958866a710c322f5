#include "herd/cli/bench_bound.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "herd/base/elapsed.h"
#include "herd/cli/bench_pattern.h"
#include "herd/comm/context.h"
#include "herd/kernels/copy.h"
#include "herd/kernels/reduce_kernel.h"
#include "herd/topology/discover.h"

namespace herd::cli {
namespace {

// Bytes that all ranks of a machine may take together. A virtual machine reports its host's whole cache, even where it
// has few of the cores.
constexpr int64_t kMostBytes = 512 << 20;

}  // namespace

MemoryBound::MemoryBound(Communicator& comm, BenchShape shape) : comm_(comm) {
  const int buffers = shape.inputs + shape.outputs;
  const int64_t max_bytes = kMostBytes / comm::CommunicatorTestAccess::context(comm).transport->ranks_of_machine();
  bytes_ = round_up(std::min(4 * this_host(1).cache_bytes, max_bytes) / buffers, kPageBytes);
  message_bytes_ = static_cast<double>(bytes_) / shape.share;
  memory_ = SharedMemory::create("bound", bytes_ * buffers);
  memory_.commit(0, bytes_ * buffers);
  BenchPattern(DType::kF32, ReduceOp::kSum, comm.size())
      .fill(memory_.data(), 0, bytes_ * buffers / size_of(DType::kF32), comm.rank(), 0);
  for (int i = 0; i < shape.inputs; ++i) inputs_.push_back(memory_.data() + i * bytes_);
  for (int i = 0; i < shape.outputs; ++i) outputs_.push_back(memory_.data() + (shape.inputs + i) * bytes_);
}

double MemoryBound::once(kernels::WriteKind store) {
  comm_.barrier();
  const auto begin = std::chrono::steady_clock::now();
  if (inputs_.size() == 1) {
    kernels::copy(outputs_, inputs_[0], bytes_, store);
  } else {
    kernels::reduce(outputs_, inputs_, bytes_ / 4, DType::kF32, ReduceOp::kSum, 1.0, store);
  }
  double us = us_since(begin) / message_bytes_;
  comm_.all_reduce(std::span(&us, 1), {.op = ReduceOp::kMax});
  return us;
}

}  // namespace herd::cli
