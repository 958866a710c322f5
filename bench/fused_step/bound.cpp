// What an optimizer fused with the reduce-scatter could save: an owner's three passes over its shard of the gradients
// (the sum of all ranks', the squares of the norm, AdamW) beside one pass by pieces that stay in the cache and write no
// gradient. Both by herd/kernels, so sums and weights have the same bits. Ranks are processes that map each other's
// gradients, one thread each, all at it at once; between two timings each rewrites its gradients.
//     fused_step_bound [ranks = 2] [parameters = 162000000] [rounds = 6] [elements of a piece = 16384]
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <vector>

#include "herd/base/elapsed.h"
#include "herd/base/median.h"
#include "herd/kernels/adamw_kernel.h"
#include "herd/kernels/reduce_kernel.h"
#include "herd/kernels/sum_of_squares.h"

namespace {

using namespace herd;

constexpr int kMostRanks = 8, kMostRounds = 64, kKinds = 5;
const char* const kNames[kKinds] = {"sum", "norm", "adamw", "sum and norm, by pieces", "all three, by pieces"};

struct Board {
  std::atomic<int> arrivals{0};
  double ms[kKinds][kMostRanks][kMostRounds] = {};
};

void* map_shared(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) std::perror("mmap"), std::exit(1);
  return at;
}

class Owner {
 public:
  Owner(int rank, std::vector<float*> gradients, int64_t shard, int64_t piece, Board& board)
      : rank_(rank),
        gradients_(std::move(gradients)),
        shard_(shard),
        piece_(piece),
        board_(board),
        weights_(static_cast<size_t>(shard), 0.1f),
        moment1_(weights_.size()),
        moment2_(weights_.size()),
        sum_(static_cast<size_t>(piece)) {}

  void round(int number) {
    fresh_gradients();
    timed(0, number, [&] { sum(0, shard_, own()); });
    timed(1, number, [&] { squares_ += kernels::sum_of_squares(own(), shard_); });
    timed(2, number, [&] { step(0, shard_, own()); });
    fresh_gradients();
    timed(3, number, [&] { by_pieces(false); });
    fresh_gradients();
    timed(4, number, [&] { by_pieces(true); });
  }

 private:
  float* own() const { return gradients_[static_cast<size_t>(rank_)] + rank_ * shard_; }

  void fresh_gradients() {
    float* mine = gradients_[static_cast<size_t>(rank_)];
    for (int64_t i = 0; i < shard_ * ranks(); ++i) mine[i] = 1e-3f * static_cast<float>(i % 97 + rank_);
  }

  void sum(int64_t begin, int64_t count, float* to) {
    std::vector<const void*> sources;
    for (const float* gradient : gradients_) sources.push_back(gradient + rank_ * shard_ + begin);
    void* const targets[] = {to};
    kernels::reduce(targets, sources, count, DType::kF32, ReduceOp::kSum);
  }

  void step(int64_t begin, int64_t count, const float* gradient) {
    const kernels::ElementRange all{0, shard_};
    kernels::adamw({.weights = weights_.data() + begin,
                    .gradient = gradient,
                    .moment1 = moment1_.data() + begin,
                    .moment2 = moment2_.data() + begin,
                    .count = count,
                    .offset = begin},
                   {}, {&all, 1});
  }

  void by_pieces(bool steps) {
    for (int64_t begin = 0; begin < shard_; begin += piece_) {
      const int64_t count = std::min(piece_, shard_ - begin);
      float* to = steps ? sum_.data() : own() + begin;
      sum(begin, count, to);
      squares_ += kernels::sum_of_squares(to, count);
      if (steps) step(begin, count, to);
    }
  }

  void timed(int kind, int round, const std::function<void()>& work) {
    meet();
    const auto begin = std::chrono::steady_clock::now();
    work();
    board_.ms[kind][rank_][round] = us_since(begin) / 1e3;
    meet();
  }

  void meet() {
    ++meetings_;
    board_.arrivals.fetch_add(1);
    while (board_.arrivals.load() < meetings_ * ranks()) sched_yield();
  }

  int ranks() const { return static_cast<int>(gradients_.size()); }

  const int rank_;
  const std::vector<float*> gradients_;  // of all ranks, whole
  const int64_t shard_, piece_;
  Board& board_;
  std::vector<float> weights_, moment1_, moment2_, sum_;
  double squares_ = 0;
  int meetings_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto option = [&](int at, int64_t otherwise) { return argc > at ? std::atoll(argv[at]) : otherwise; };
  const int ranks = static_cast<int>(std::clamp<int64_t>(option(1, 2), 1, kMostRanks));
  const int64_t shard = option(2, 162'000'000) / ranks, piece = std::max<int64_t>(1, option(4, 1 << 14));
  const int rounds = static_cast<int>(std::clamp<int64_t>(option(3, 6), 1, kMostRounds));
  std::vector<float*> gradients;
  for (int q = 0; q < ranks; ++q)
    gradients.push_back(static_cast<float*>(map_shared(static_cast<size_t>(shard * ranks) * sizeof(float))));
  Board& board = *new (map_shared(sizeof(Board))) Board;
  std::vector<pid_t> others;
  int rank = 0;
  for (int q = 1; q < ranks && rank == 0; ++q) {
    const pid_t child = fork();
    if (child == 0) rank = q;
    if (child > 0) others.push_back(child);
  }
  Owner owner(rank, gradients, shard, piece, board);
  for (int r = 0; r < rounds; ++r) owner.round(r);
  if (rank != 0) _exit(0);
  for (const pid_t child : others) waitpid(child, nullptr, 0);
  for (int kind = 0; kind < kKinds; ++kind) {
    std::vector<double> all;
    for (int q = 0; q < ranks; ++q) all.insert(all.end(), board.ms[kind][q] + (rounds > 1), board.ms[kind][q] + rounds);
    std::printf("%-24s median %6.1f ms, least %6.1f ms\n", kNames[kind], median(all),
                *std::min_element(all.begin(), all.end()));
  }
}
