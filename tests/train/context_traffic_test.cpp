// Bytes that ranks who share sequences send each other, as the communicator counts them, are those of the equation.
// T tokens, width h, e bytes an element, P ranks; of a layer and a micro-batch, a rank sends
//   4 (1 + kv_heads/heads) T/P h e (P-1)/P, and half as much more with full recompute
// Source: Jacobs et al. 2023, arXiv:2309.14509.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "train_in_threads.h"

namespace herd::train {
namespace {

constexpr int64_t kTokens = 256, kWidth = 64;

// Of all ranks together, in one step.
int64_t sent(spec::RunFile run, int64_t layers, int64_t micro_batches) {
  run.model.layers = layers;
  run.train.batch = micro_batches;
  const std::vector<int64_t> sent = train_in_threads(run, static_cast<int>(run.mesh.cp * run.mesh.tp), 2).sent;
  return std::accumulate(sent.begin(), sent.end(), int64_t{0});
}

// What layers and micro-batches send by themselves, each, is what more of both send beyond more of either: gradients
// are summed once a step.
int64_t of_a_layer(const spec::RunFile& run) {
  const int64_t more = sent(run, 3, 3) - sent(run, 3, 1) - sent(run, 2, 3) + sent(run, 2, 1);
  EXPECT_EQ(more % 2, 0);
  return more / 2;
}

class ContextTraffic : public testing::TestWithParam<std::tuple<int64_t, std::string>> {};

TEST_P(ContextTraffic, OfALayerIsThatOfItsEquation) {
  const auto& [cp, precision] = GetParam();
  spec::RunFile run = tiny_run();
  run.model.width = kWidth, run.model.heads = 8, run.model.head_width = 8, run.model.kv_heads = 4, run.model.ffn = 64;
  run.model.context = kTokens;
  run.strategy.precision = precision;
  run.train.micro_batch = 1;
  run.mesh.cp = cp;
  run.strategy.context = "all_to_all";
  const int64_t e = precision == "fp32" ? 4 : 2;
  const int64_t of_rank = 4 * (kTokens / cp) * (kWidth + kWidth / 2) * e * (cp - 1) / cp;
  EXPECT_EQ(of_a_layer(run), cp * of_rank);
  run.strategy.recompute = "full";
  EXPECT_EQ(of_a_layer(run), cp * of_rank * 3 / 2);
}

// 2(P-1)/P T h_kv e forward, again in backward, and 2 T h_kv 4 of gradients, which are summed in fp32.
TEST_P(ContextTraffic, OfALayerInARingIsThatOfItsEquation) {
  const auto& [cp, precision] = GetParam();
  spec::RunFile run = tiny_run();
  run.model.width = kWidth, run.model.heads = 8, run.model.head_width = 8, run.model.kv_heads = 4, run.model.ffn = 64;
  run.model.context = kTokens;
  run.strategy.precision = precision;
  run.train.micro_batch = 1;
  run.mesh.cp = cp;
  run.strategy.context = "ring";
  const int64_t e = precision == "fp32" ? 4 : 2, keys = kWidth / 2, passed = 2 * (cp - 1) * kTokens * keys * e / cp;
  EXPECT_EQ(of_a_layer(run), cp * (2 * passed + 2 * kTokens * keys * 4));
  run.strategy.recompute = "full";
  EXPECT_EQ(of_a_layer(run), cp * (3 * passed + 2 * kTokens * keys * 4));
}

// Beside t tensor ranks, a rank has the heads of its part, 1/t of what is exchanged or passes by; and of T/P rows these
// ranks send each other what tensor_traffic_test.cpp says.
TEST(TensorAndContextTraffic, OfALayerIsThatOfItsEquations) {
  constexpr int64_t tp = 2, cp = 2, tokens = 512, keys = kWidth / 2, e = 4, rows = tokens / cp * kWidth * e;
  spec::RunFile run = tiny_run();
  run.model.width = kWidth, run.model.heads = 8, run.model.head_width = 8, run.model.kv_heads = 4, run.model.ffn = 64;
  run.model.context = tokens;
  run.train.micro_batch = 1;
  run.mesh.cp = cp, run.mesh.tp = tp;
  const int64_t exchanged = 4 * (tokens / cp) * (kWidth + keys) / tp * e * (cp - 1) / cp;
  const int64_t passed = 2 * (cp - 1) * tokens * keys / tp * e / cp;
  run.strategy.context = "all_to_all";
  EXPECT_EQ(of_a_layer(run), tp * cp * (exchanged + 8 * (tp - 1) * rows / tp));
  run.strategy.sequence_parallel = false;
  run.strategy.context = "ring";
  EXPECT_EQ(of_a_layer(run), tp * cp * (2 * passed + 2 * tokens * keys / tp * 4 + 8 * (tp - 1) * rows / tp));
}

// Each number of ranks and each precision once; the product with HERD_FULL_TESTS=1.
std::vector<std::tuple<int64_t, std::string>> ranks_and_precisions() {
  if (std::getenv("HERD_FULL_TESTS") == nullptr) return {{2, "bf16"}, {4, "fp32"}};
  return {{2, "fp32"}, {2, "bf16"}, {4, "fp32"}, {4, "bf16"}};
}

INSTANTIATE_TEST_SUITE_P(Ranks, ContextTraffic, testing::ValuesIn(ranks_and_precisions()), [](const auto& one) {
  return std::get<1>(one.param) + "_cp" + std::to_string(std::get<0>(one.param));
});

}  // namespace
}  // namespace herd::train
