#include "herd/train/expert_load.h"

#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include "herd/storage/metrics.h"
#include "herd/train/expert_load_figure.h"

namespace herd::train {
namespace {

TEST(ExpertLoad, SplitsCountsByLayer_AndMovesEachBias) {
  Routers routers;
  for (const char* name : {"h.0.router.bias", "h.1.router.bias"})
    routers.push_back(std::make_shared<nn::RouterState>(name, 2, 0.5));
  const std::vector<uint8_t> close_N = {0, 1, 0};
  routers[0]->count(at::tensor({0, 0, ~1}, at::kLong), nn::token_rows(3, {0}, {.tokens = 3}), close_N);
  const std::vector<int64_t> counts = take_expert_load(routers);
  EXPECT_EQ(counts, (std::vector<int64_t>{2, 1, 1, 1, 0, 0, 0, 0}));
  const ExpertLoad load = balance_experts(routers, counts);
  EXPECT_EQ(load.by_layer, (std::vector<std::vector<int64_t>>{{2, 1}, {0, 0}}));
  EXPECT_EQ(load.close_by_layer, (std::vector<int64_t>{1, 0}));
  EXPECT_DOUBLE_EQ(load.dropped_share(), 1.0 / 3);
  EXPECT_TRUE(at::equal(routers[0]->bias_E(), at::tensor({-0.5F, 0.5F})));
  EXPECT_TRUE(at::equal(routers[1]->bias_E(), at::tensor({0.0F, 0.0F})));
  EXPECT_DOUBLE_EQ(worst_imbalance(load.by_layer), 4.0 / 3);
  EXPECT_TRUE(balance_experts({}, {}).by_layer.empty());
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// Of many experts a layer has one row; of many steps several have one column.
TEST(ExpertLoadFigure, HasARowForEachExpert_WhereThereAreFew) {
  const auto steps = [](size_t layers, size_t experts, int64_t n) {
    std::vector<StepMetrics> metrics(1);  // of a run that had no experts yet
    for (int64_t step = 1; step <= n; ++step)
      metrics.push_back({.step = step, .expert_load = {layers, std::vector<int64_t>(experts, 3)}});
    metrics.back().expert_load.back().back() = 9;
    return metrics;
  };
  const std::string few = expert_load_figure(steps(2, 4, 3), 0);
  EXPECT_EQ(count(few, "<title>layer "), 2 * 4 * 3);
  EXPECT_EQ(count(few, "<title>layer 1 expert 3, step 3: 2.00</title>"), 1);
  const std::string many = expert_load_figure(steps(3, 64, 250), 0);
  EXPECT_EQ(count(many, "<title>layer 2, step"), 84);  // three steps a column
  EXPECT_EQ(expert_load_figure({StepMetrics{}}, 0), "");
}

TEST(ExpertLoadFigure, NumbersLayersAsTheModelDoes_WhereTheFirstOnesHaveNoExperts) {
  for (const size_t experts : {2, 200}) {  // a row for each expert, or for each layer
    const std::string figure =
        expert_load_figure({{.step = 1, .expert_load = {2, std::vector<int64_t>(experts, 3)}}}, 3);
    EXPECT_EQ(count(figure, "<title>layer 0"), 0);
    EXPECT_GT(count(figure, "<title>layer 3"), 0);
    EXPECT_GT(count(figure, "<title>layer 4"), 0);
  }
}

}  // namespace
}  // namespace herd::train
