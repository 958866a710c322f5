#include "herd/nn/run_block.h"

#include <gtest/gtest.h>

namespace herd::nn {
namespace {

// y0 = x0 * gain, y1 = x1 + x0; the second parameter is never used.
class Toy final : public Block {
 public:
  explicit Toy(std::shared_ptr<ParameterGroup> group) : Block("toy", {group}), gain_(group->find("gain")) {}
  Tuple forward(const Tuple& x, const Context&) override { return {x[0] * gain_.value(), x[1] + x[0]}; }

 private:
  Parameter& gain_;
};

TEST(RunBlock, GivesInputGradientsAndAddsToTheFlatGradient) {
  auto group = std::make_shared<ParameterGroup>("g", std::vector<ParameterSpec>{{"gain", {4}}, {"unused", {2}}});
  Toy toy(group);
  const at::Tensor weights = at::arange(1, 7, at::kFloat), gradient = at::full({6}, std::nanf(""));
  group->attach(weights);
  group->attach_gradient(gradient);
  group->begin_gradient();
  const at::Tensor x0 = at::full({4}, 2.0f), x1 = at::full({4}, 3.0f);
  for (int micro_batch = 1; micro_batch <= 2; ++micro_batch) {
    Graph graph = run_forward(toy, {x0, x1}, {});
    EXPECT_FALSE(detached(graph.outputs)[0].requires_grad());
    group->detach();
    group->attach(weights.clone());
    const Tuple dx = run_backward(std::move(graph), {at::ones({4}), at::full({4}, 10.0f)});
    EXPECT_TRUE(at::equal(dx[0], weights.narrow(0, 0, 4) + 10));
    EXPECT_TRUE(at::equal(dx[1], at::full({4}, 10.0f)));
    EXPECT_TRUE(at::equal(gradient, at::tensor({2.f, 2.f, 2.f, 2.f, 0.f, 0.f}) * micro_batch));
    EXPECT_TRUE(graph.outputs.empty());
  }
}

TEST(RunBlock, GivesInputGradientsOfAFrozenGroup_WhichHasNoneItself) {
  auto group =
      std::make_shared<ParameterGroup>("g", std::vector<ParameterSpec>{{"gain", {4}}}, GroupOptions{.frozen = true});
  Toy toy(group);
  group->attach(at::arange(1, 5, at::kFloat));
  group->begin_gradient();
  const at::Tensor x = at::full({4}, 2.0f);
  const Tuple dx = run_backward(run_forward(toy, {x, x}, {}), {at::ones({4}), at::ones({4})});
  EXPECT_TRUE(at::equal(dx[0], at::arange(2, 6, at::kFloat)));
  EXPECT_FALSE(group->gradient_attached());
  // Of whole numbers, such as tokens, there is nothing to differentiate.
  const at::Tensor tokens = at::full({4}, 2, at::kLong);
  Graph graph = run_forward(toy, {tokens, tokens}, {});
  EXPECT_FALSE(run_backward(std::move(graph), {at::ones({4}), at::Tensor()})[0].defined());
}

TEST(RunBlock, LeavesNoGraphWithoutOne) {
  auto group = std::make_shared<ParameterGroup>("g", std::vector<ParameterSpec>{{"gain", {4}}});
  Toy toy(group);
  group->attach(at::ones({4}));
  EXPECT_FALSE(run_without_graph(toy, {at::ones({4}), at::ones({4})}, {})[0].requires_grad());
}

}  // namespace
}  // namespace herd::nn
