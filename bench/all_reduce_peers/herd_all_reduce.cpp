// Times herd's all-reduce of fp32 sums; started by compare.py under `herd run`.
//   herd_all_reduce BYTES ITERATIONS symmetric|ordinary
// Every rank rewrites its input before each iteration. Rank 0 prints microseconds of the slowest rank, one
// iteration a line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "herd_all_reduce BYTES ITERATIONS symmetric|ordinary\n"), 2;
  const size_t count = std::strtoull(argv[1], nullptr, 10) / sizeof(float);
  const int iterations = std::atoi(argv[2]);
  auto comm = herd::Communicator::create();
  const auto bytes = static_cast<int64_t>(count * sizeof(float));
  std::vector<float> ordinary;
  herd::SymmetricMemory symmetric;
  std::span<float> x;
  if (std::string(argv[3]) == "symmetric") {
    symmetric = comm.allocate_symmetric(bytes);
    x = symmetric.span<float>();
  } else {
    ordinary.resize(count);
    x = ordinary;
  }
  std::vector<double> us;
  const auto n = static_cast<float>(comm.size());
  for (int i = -3; i < iterations; ++i) {
    std::fill(x.begin(), x.end(), static_cast<float>(comm.rank() + 1));
    comm.barrier();
    const auto start = std::chrono::steady_clock::now();
    comm.all_reduce(x);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (x[0] != n * (n + 1) / 2 || x[count - 1] != x[0]) return std::fprintf(stderr, "wrong sum\n"), 1;
    if (i >= 0) us.push_back(took.count());
  }
  comm.all_reduce(us, {.op = herd::ReduceOp::kMax});
  for (size_t i = 0; comm.rank() == 0 && i < us.size(); ++i) std::printf("us %.3f\n", us[i]);
}
