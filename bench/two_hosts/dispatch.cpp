// Times the dispatch of rows to the ranks of their experts; started by dispatch.py under `herd run` on both hosts.
//   two_hosts_dispatch TOKENS WIDTH EXPERTS TOP_K ITERATIONS
// In each iteration rows go straight to their ranks, then each token once to a host, under a router that chooses at
// random; counts are told each time. Rank 0 prints microseconds of the slowest rank: "straight us 1.0", "once us 1.0".
#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "herd/bridge/tensor_buffer.h"
#include "herd/comm/communicator.h"
#include "herd/nn/experts_of_ranks.h"
#include "herd/nn/row_transfer_internal.h"

namespace {

at::Tensor drawn_choices(int64_t tokens, int64_t experts, int64_t top_k, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> all(static_cast<size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  const at::Tensor out = at::full({tokens, top_k}, 0, at::kLong);
  for (int64_t n = 0; n < tokens; ++n) {
    std::shuffle(all.begin(), all.end(), random);
    std::copy_n(all.begin(), top_k, out.mutable_data_ptr<int64_t>() + n * top_k);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return std::fprintf(stderr, "two_hosts_dispatch TOKENS WIDTH EXPERTS TOP_K ITERATIONS\n"), 2;
  const auto number = [&](int at) { return std::strtoll(argv[at], nullptr, 10); };
  const int64_t tokens = number(1), width = number(2), experts = number(3), top_k = number(4), iterations = number(5);
  auto world = herd::Communicator::create();
  const std::vector<int> hosts = herd::nn::hosts_of_ranks(world);
  for (int64_t i = -2; i < iterations; ++i) {
    const at::Tensor choices =
        drawn_choices(tokens, experts, top_k, static_cast<uint64_t>((i + 2) * world.size() + world.rank()));
    const herd::nn::RowOrder order = herd::nn::order_rows(choices, experts);
    const at::Tensor x = at::full({tokens, width}, static_cast<float>(world.rank() + i), at::kFloat);
    at::Tensor come[2];
    for (const int once : {0, 1}) {
      world.barrier();
      const auto start = std::chrono::steady_clock::now();
      const herd::nn::RowTransfer transfer(order, once == 1 ? std::span<const int>(hosts) : std::span<const int>(),
                                           world);
      come[once] = transfer.dispatch(x.index_select(0, order.tokens_P), x, {}, "dispatch");
      std::vector<double> us = {
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count()};
      world.all_reduce(us, {.op = herd::ReduceOp::kMax});
      if (world.rank() == 0 && i >= 0) std::printf("%s us %.3f\n", once == 1 ? "once" : "straight", us[0]);
    }
    if (!come[0].equal(come[1])) return std::fprintf(stderr, "other rows\n"), 1;
  }
}
