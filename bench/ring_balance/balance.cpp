// What the slowest rank of a ring of attention computes, over the mean of all ranks: with the zigzag of token_cut.h,
// and with one range of tokens a rank, in order. Both run the products of each rank's steps, forward and backward, one
// rank after the other in one process: inside a ring, the waits for keys make all ranks take as long.
//   Pairs of tokens of rank r of P, with S tokens each: zigzag S(S+1)/2 + (P-1)S^2/2, in order S(S+1)/2 + r S^2.
//   So the last rank in order has (2P-1)/P of the mean, for S much greater than 1.
//     zigzag_balance [tokens = 4096] [heads = 8] [head width = 64] [rounds = 5]
#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "herd/base/elapsed.h"
#include "herd/bridge/flash_attention.h"
#include "herd/nn/ring_steps.h"

namespace {

using namespace herd;
using nn::RingPairs;

// Returns what rank r computes in all of its steps.
std::vector<RingPairs> in_zigzag(int64_t tokens, int r, int parts) {
  std::vector<RingPairs> out;
  for (const nn::RingStep& step : nn::ring_steps({.tokens = tokens, .place = r, .parts = parts, .zigzag = true}, true))
    out.insert(out.end(), step.pairs.begin(), step.pairs.end());
  return out;
}

std::vector<RingPairs> in_order(int64_t tokens, int r, int parts) {
  const int64_t S = tokens / parts;
  std::vector<RingPairs> out = {{0, S, 0, S, true}};
  for (int owner = 0; owner < r; ++owner) out.push_back({0, S, 0, S, false});
  return out;
}

double num_pairs(const std::vector<RingPairs>& ranges) {
  int64_t pairs = 0;
  for (const RingPairs& range : ranges)
    pairs += range.causal ? range.queries * (range.queries + 1) / 2 : range.queries * range.keys;
  return static_cast<double>(pairs);
}

struct Tensors {
  at::Tensor q, k, v, dy;
};

double ms_of(const Tensors& of, const std::vector<RingPairs>& ranges) {
  const auto begin = std::chrono::steady_clock::now();
  for (const RingPairs& pairs : ranges) {
    const auto queries = [&](const at::Tensor& x) { return x.narrow(2, pairs.query, pairs.queries); };
    const auto keys = [&](const at::Tensor& x) { return x.narrow(2, pairs.key, pairs.keys); };
    const AttendedRows rows = flash_attention(queries(of.q), keys(of.k), keys(of.v), pairs.causal);
    flash_attention_backward(queries(of.dy), queries(of.q), keys(of.k), keys(of.v), rows, pairs.causal);
  }
  return us_since(begin) / 1e3;
}

double slowest_over_mean(const std::vector<double>& ranks) {
  double sum = 0;
  for (const double one : ranks) sum += one;
  return *std::max_element(ranks.begin(), ranks.end()) / (sum / static_cast<double>(ranks.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const auto option = [&](int at, int64_t otherwise) { return argc > at ? std::atoll(argv[at]) : otherwise; };
  const int64_t tokens = option(1, 4096), heads = option(2, 8), width = option(3, 64), rounds = option(4, 5);
  at::set_num_threads(1);
  std::printf("%5s  %-8s  %22s  %22s  %s\n", "ranks", "cut", "pairs, slowest/mean", "time, slowest/mean",
              "ms of ranks");
  for (const int parts : {2, 4}) {
    const int64_t S = tokens / parts;
    const auto tensor = [&] { return at::randn({1, S, heads, width}).transpose(1, 2); };
    const Tensors of{tensor(), tensor(), tensor(), tensor()};
    using Cut = std::function<std::vector<RingPairs>(int64_t, int, int)>;
    for (const auto& [name, cut] : {std::pair<const char*, Cut>{"zigzag", in_zigzag}, {"in order", in_order}}) {
      std::vector<double> pairs, least(static_cast<size_t>(parts), 1e30);
      for (int r = 0; r < parts; ++r) pairs.push_back(num_pairs(cut(tokens, r, parts)));
      for (int64_t round = 0; round < rounds; ++round) {  // ranks by turns, and the least time of each
        for (int r = 0; r < parts; ++r) {
          double& ms = least[static_cast<size_t>(r)];
          ms = std::min(ms, ms_of(of, cut(tokens, r, parts)));
        }
      }
      std::printf("%5d  %-8s  %22.4f  %22.3f ", parts, name, slowest_over_mean(pairs), slowest_over_mean(least));
      for (const double ms : least) std::printf(" %.1f", ms);
      std::printf("\n");
    }
  }
}
