#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "herd/cli/bench.h"
#include "herd/kernels/copy.h"
#include "herd/kernels/reduce.h"
#include "herd/memory/shared_memory.h"

namespace herd::cli {
namespace {

// Inputs and outputs of one rank's share of an operation of n ranks, and how often the share fits the message.
struct Shape {
  int inputs = 1, outputs = 1;
  int shares = 1;  // shares of all ranks = the message this many times
};

Shape shape_of(const std::string& op, int n) {
  if (op == "all_reduce") return {n, n, 1};
  if (op == "reduce_scatter" || op == "reduce") return {n, 1, 1};
  if (op == "all_gather") return {1, n, 1};
  return {1, 1, n};  // broadcast, send: every rank moves the whole message
}

void run_kernel(const std::vector<void*>& outputs, const std::vector<const void*>& inputs, int64_t bytes,
                kernels::StoreKind store) {
  if (inputs.size() == 1) {
    kernels::copy(outputs, inputs[0], bytes, store);
  } else {
    kernels::reduce(outputs, inputs, bytes / 4, DType::kF32, ReduceOp::kSum, 1.0, store);
  }
}

}  // namespace

double memory_bound(Communicator& comm, const std::string& op) {
  using std::chrono::steady_clock;
  const Shape shape = shape_of(op, comm.size());
  const int64_t cache = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 8 << 20);
  const int64_t buffers = shape.inputs + shape.outputs;
  const int64_t bytes = round_up(4 * cache / buffers, kPageBytes);
  SharedMemory memory = SharedMemory::create("bound", bytes * buffers);
  memory.commit(0, bytes * buffers);
  std::memset(memory.data(), 0, static_cast<size_t>(bytes * buffers));
  std::vector<void*> outputs;
  std::vector<const void*> inputs;
  for (int i = 0; i < shape.inputs; ++i) inputs.push_back(memory.data() + i * bytes);
  for (int i = 0; i < shape.outputs; ++i) outputs.push_back(memory.data() + (shape.inputs + i) * bytes);
  double best = 0;
  for (int repeat = 0; repeat < 6; ++repeat) {
    comm.barrier();
    const auto begin = steady_clock::now();
    run_kernel(outputs, inputs, bytes, repeat % 2 == 0 ? kernels::StoreKind::kStream : kernels::StoreKind::kCached);
    double seconds = std::chrono::duration<double>(steady_clock::now() - begin).count();
    comm.all_reduce(std::span(&seconds, 1), {.op = ReduceOp::kMax});
    best = std::max(best, static_cast<double>(bytes) * comm.size() / shape.shares / seconds / 1e9);
  }
  return best;
}

}  // namespace herd::cli
