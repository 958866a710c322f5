// Times herd's all-reduce of fp32 sums; started by compare.py under `herd run` on both hosts.
//   two_hosts_all_reduce BYTES ITERATIONS [ALGORITHM] [cyclic]
// An empty ALGORITHM is chosen; cyclic: in the order of ranks that are dealt out to two hosts in turn. Every rank
// rewrites its input before each iteration. Rank 0 prints microseconds of the slowest rank, one iteration a line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "herd/comm/communicator.h"

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "two_hosts_all_reduce BYTES ITERATIONS [ALGORITHM] [cyclic]\n"), 2;
  const int iterations = std::atoi(argv[2]);
  const herd::OpOptions call = {.algorithm = argc > 3 ? argv[3] : ""};
  auto world = herd::Communicator::create();
  const int half = (world.size() + 1) / 2;
  auto comm = world.split(0, argc > 4 ? world.rank() % half * 2 + world.rank() / half : world.rank(), "bench");
  std::vector<float> x(std::strtoull(argv[1], nullptr, 10) / sizeof(float));
  std::vector<double> us;
  const auto n = static_cast<float>(comm.size());
  for (int i = -3; i < iterations; ++i) {
    std::fill(x.begin(), x.end(), static_cast<float>(comm.rank() + 1));
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    comm.all_reduce(x, call);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (x.front() != n * (n + 1) / 2 || x.back() != x.front()) return std::fprintf(stderr, "wrong sum\n"), 1;
    if (i >= 0) us.push_back(took.count());
  }
  comm.all_reduce(us, {.op = herd::ReduceOp::kMax});
  for (size_t i = 0; comm.rank() == 0 && i < us.size(); ++i) std::printf("us %.3f\n", us[i]);
}
