#include "herd/nn/transformer_block.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/nn/run_block.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

constexpr TransformerShape kShape{.width = 16, .heads = 4, .ffn = 24};
constexpr TransformerShape kLlama{.width = 16,
                                  .heads = 4,
                                  .ffn = 24,
                                  .kv_heads = 2,
                                  .head_width = 6,
                                  .norm = {NormKind::kRmsNorm},
                                  .gated = true,
                                  .biases = false,
                                  .rotary = Rotary{.theta = 50}};

struct OneBlock : OwnedGroup {
  explicit OneBlock(const TransformerShape& shape)
      : OwnedGroup(transformer_parameters("b.", shape, 2)),
        layer(LayerParts{shape}.make("b", "b.", {"norm_1", "attention", "add_1", "norm_2", "mlp", "add_2"}, {group})),
        block(*layer) {}
  std::shared_ptr<Block> layer;
  Block& block;
};

Context training() { return {.training = true, .seed = 1, .step = 2, .samples = {7, 9}, .layer = 1}; }

TEST(TransformerBlock, TokensDoNotSeeTheFuture) {
  OneBlock one(kShape);
  const at::Tensor x = wave({1, 6, 16}, 0.31);
  at::Tensor changed = x.clone();
  changed.narrow(1, 4, 2).add_(1);
  const at::Tensor a = run_without_graph(one.block, {x}, {})[0], b = run_without_graph(one.block, {changed}, {})[0];
  EXPECT_TRUE(at::allclose(a.narrow(1, 0, 4), b.narrow(1, 0, 4), 0, 1e-6));
  EXPECT_FALSE(at::allclose(a.narrow(1, 4, 2), b.narrow(1, 4, 2), 0, 1e-3));
}

// The slope of sum(y * dy) along x and along every parameter, by central differences.
TEST(TransformerBlock, GradientsAreSlopes_WithAndWithoutDropout) {
  for (auto [shape, p] : {std::pair(kShape, 0.0), {kShape, 0.25}, {kLlama, 0.0}, {kLlama, 0.25}}) {
    shape.dropout = p;
    OneBlock one(shape);
    const at::Tensor x = wave({2, 5, 16}, 0.31), dy = wave({2, 5, 16}, 0.77);
    const Tuple dx = run_backward(run_forward(one.block, {x}, training()), {dy});
    const auto value = [&](const at::Tensor& at_x) {
      return (run_without_graph(one.block, {at_x}, training())[0] * dy).sum(at::kDouble).item<double>();
    };
    constexpr double kStep = 1e-2;
    const at::Tensor direction = wave({2, 5, 16}, 1.9);
    EXPECT_NEAR((value(x + direction * kStep) - value(x - direction * kStep)) / (2 * kStep),
                (dx[0] * direction).sum().item<double>(), 2e-2);
    for (const Parameter& parameter : one.group->parameters()) {
      at::Tensor part = one.weights.narrow(0, parameter.offset(), parameter.spec().elements());
      const at::Tensor along = wave({part.numel()}, 1.7);
      const double slope = (parameter.gradient().view({-1}) * along).sum().item<double>();
      part.add_(along, kStep);
      const double above = value(x);
      part.add_(along, -2 * kStep);
      const double below = value(x);
      part.add_(along, kStep);
      EXPECT_NEAR((above - below) / (2 * kStep), slope, 3e-2 * std::max(1.0, std::abs(slope))) << parameter.spec().name;
    }
  }
}

TEST(TransformerBlock, DropoutDrawsTheSameForASampleWhateverTheBatch) {
  TransformerShape shape = kShape;
  shape.dropout = 0.3;
  OneBlock one(shape);
  const at::Tensor x = wave({2, 5, 16}, 0.31);
  Context second = training();
  second.samples = {9};
  EXPECT_TRUE(at::allclose(run_without_graph(one.block, {x}, training())[0][1],
                           run_without_graph(one.block, {x.narrow(0, 1, 1)}, second)[0][0], 1e-6, 1e-6));
}

TEST(TransformerBlock, RefusesHeadsThatDoNotDivideTheWidth) {
  TransformerShape shape = kShape;
  shape.heads = 3;
  try {
    transformer_parameters("b.", shape, 2);
    ADD_FAILURE() << "took it";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("16 % 3 != 0"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace herd::nn
