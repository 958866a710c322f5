// Bytes that ranks who share layers send each other, as the communicator counts them, are those of the equations.
// T rows of a micro-batch, width h, e bytes an element, t ranks; of a layer and a micro-batch, a rank sends
//   without sequence parallel   4 all-reduces of T*h*e: 4 * 2(t-1)/t * T*h*e
//   with it                     4 gathers and 4 reduce-scatters of T*h*e: 8 (t-1)/t * T*h*e
//   and inputs gathered again   2 gathers more: 10 (t-1)/t * T*h*e
//   and full recompute          2 gathers and 1 reduce-scatter more, and 1 gather less: 12 (t-1)/t * T*h*e
// Of a message of 32 KiB and less all ranks may read the whole, to wait only once: here they are of 64 KiB.
// Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "train_in_threads.h"

namespace herd::train {
namespace {

constexpr int64_t kMessage = 64 << 10;  // T*h*e, of which shares are whole numbers

spec::RunFile run_of(int64_t tp, const std::string& precision) {
  spec::RunFile run = tiny_run();
  run.model.width = 64, run.model.heads = 4, run.model.head_width = 16, run.model.kv_heads = 4, run.model.ffn = 128;
  run.model.context = kMessage / run.model.width / (precision == "fp32" ? 4 : 2);
  run.strategy.precision = precision;
  run.train.micro_batch = 1;
  run.mesh.tp = tp;
  return run;
}

// Of all ranks together, in one step.
int64_t sent(spec::RunFile run, int64_t layers, int64_t micro_batches) {
  run.model.layers = layers;
  run.train.batch = micro_batches;
  const std::vector<int64_t> sent = train_in_threads(run, static_cast<int>(run.mesh.tp), 2).sent;
  return std::accumulate(sent.begin(), sent.end(), int64_t{0});
}

// What layers and micro-batches send by themselves, each, is what more of both send beyond more of either: embedding
// and loss are no part of it, nor are gradients of norms, which are summed once a step.
int64_t of_a_layer(const spec::RunFile& run) {
  const int64_t more = sent(run, 3, 3) - sent(run, 3, 1) - sent(run, 2, 3) + sent(run, 2, 1);
  EXPECT_EQ(more % 2, 0);
  return more / 2;
}

class TensorTraffic : public testing::TestWithParam<std::tuple<int64_t, std::string>> {};

TEST_P(TensorTraffic, OfALayerIsThatOfItsEquation) {
  const auto& [tp, precision] = GetParam();
  spec::RunFile run = run_of(tp, precision);
  run.strategy.sequence_parallel = false;
  EXPECT_EQ(of_a_layer(run), tp * (4 * 2 * (tp - 1) * kMessage / tp));
  run.strategy.sequence_parallel = true;
  EXPECT_EQ(of_a_layer(run), tp * (8 * (tp - 1) * kMessage / tp));
  run.strategy.keep_gathered = false;
  EXPECT_EQ(of_a_layer(run), tp * (10 * (tp - 1) * kMessage / tp));
  run.strategy.recompute = "full";
  EXPECT_EQ(of_a_layer(run), tp * (12 * (tp - 1) * kMessage / tp));
}

// Each number of ranks and each precision once; the product with HERD_FULL_TESTS=1.
std::vector<std::tuple<int64_t, std::string>> ranks_and_precisions() {
  if (std::getenv("HERD_FULL_TESTS") == nullptr) return {{2, "bf16"}, {4, "fp32"}};
  return {{2, "fp32"}, {2, "bf16"}, {4, "fp32"}, {4, "bf16"}};
}

INSTANTIATE_TEST_SUITE_P(Ranks, TensorTraffic, testing::ValuesIn(ranks_and_precisions()), [](const auto& one) {
  return std::get<1>(one.param) + "_tp" + std::to_string(std::get<0>(one.param));
});

}  // namespace
}  // namespace herd::train
