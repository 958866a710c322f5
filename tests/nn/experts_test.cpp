#include "herd/nn/experts.h"

#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include "herd/nn/deferred_gradients.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

using torch::autograd::grad;

constexpr int64_t kExperts = 5, kWidth = 6, kFfn = 7;

struct Layer {
  explicit Layer(const GroupOptions& options = {})
      : owned({{"gate", {kExperts, kFfn, kWidth}, true, Init::kNormal, 0.7},
               {"up", {kExperts, kFfn, kWidth}, true, Init::kNormal, 0.7},
               {"down", {kExperts, kWidth, kFfn}, true, Init::kNormal, 0.7}},
              11, options),
        parameters{owned.group->find("gate"), owned.group->find("up"), owned.group->find("down")} {}
  OwnedGroup owned;
  ExpertParameters parameters;
};

// Every expert for every token, times its weight or zero.
at::Tensor by_autograd(const at::Tensor& x, const Routing& routing, const ExpertParameters& parameters) {
  at::Tensor y = at::zeros_like(x);
  for (int64_t e = 0; e < kExperts; ++e) {
    const at::Tensor gate = at::matmul(x, parameters.gate.value()[e].t());
    const at::Tensor hidden = gate * gate.sigmoid() * at::matmul(x, parameters.up.value()[e].t());
    const at::Tensor weight = (routing.weights_Nk * routing.experts_Nk.eq(e)).sum(1, true);
    y = y + weight * at::matmul(hidden, parameters.down.value()[e].t());
  }
  return y;
}

at::Tensor weights_like(const at::Tensor& experts) {
  return wave(experts.sizes(), 0.4).abs().add(0.1).requires_grad_();
}

void expect_close(const at::Tensor& mine, const at::Tensor& theirs, const std::string& what) {
  const double largest = theirs.abs().max().item<double>();
  EXPECT_LE((mine.to(at::kDouble) - theirs.to(at::kDouble)).abs().max().item<double>(), 2e-6 * largest + 1e-7) << what;
}

// Fewer tokens than experts, all tokens to one expert, experts without tokens, more rows than are multiplied at a time.
std::vector<std::pair<std::string, at::Tensor>> choices() {
  const at::Tensor many = at::arange(2 * kExpertRows + 30, at::kLong);
  return {{"one token", at::tensor({3, 0}, at::kLong).view({1, 2})},
          {"no token", at::empty({0, 2}, at::kLong)},
          {"all to one", at::full({9, 1}, 2, at::kLong)},
          {"all to two", at::tensor({4, 1}, at::kLong).expand({9, 2}).contiguous()},
          {"mixed",
           at::stack({many.slice(0, 0, 17).remainder(kExperts), many.slice(0, 0, 17).add(3).remainder(kExperts)}, 1)},
          {"some dropped", at::tensor({3, ~0, ~3, 1, ~2, ~4, 0, 3}, at::kLong).view({4, 2})},
          {"all dropped", at::full({3, 2}, ~1, at::kLong)},
          {"many to one", at::zeros_like(many).unsqueeze(1)}};
}

TEST(Experts, GiveWhatEveryExpertForEveryTokenWouldGive_AndSoDoGradients) {
  for (const auto& [name, experts_Nk] : choices()) {
    Layer layer;
    const at::Tensor x = wave({experts_Nk.size(0), kWidth}, 0.9).requires_grad_();
    const Routing routing{weights_like(experts_Nk), experts_Nk, {}};
    const at::Tensor& w = routing.weights_Nk;
    const at::Tensor expected = by_autograd(x, routing, layer.parameters), dy = wave(x.sizes(), 1.3);
    const auto& [gate, up, down] = layer.parameters;
    const auto theirs = grad({expected}, {x, w, gate.value(), up.value(), down.value()}, {dy});
    for (double times = 1; times <= 2; ++times) {
      const at::Tensor y = experts(x, routing, layer.parameters);
      if (y.numel() > 0) expect_close(y, expected, name + " y");
      const auto mine = grad({y}, {x, w, gate.value()}, {dy}, false, false, true);
      EXPECT_FALSE(mine[2].defined());
      if (y.numel() > 0) expect_close(mine[0], theirs[0], name + " dx");
      if (y.numel() > 0) expect_close(mine[1], theirs[1], name + " dw");
      expect_close(gate.gradient(), theirs[2] * times, name + " gate");
      expect_close(up.gradient(), theirs[3] * times, name + " up");
      expect_close(down.gradient(), theirs[4] * times, name + " down");
    }
    at::NoGradGuard no_grad;
    if (x.numel() > 0) expect_close(experts(x, routing, layer.parameters), expected, name + " without a graph");
  }
}

// The second half of a backward gives the same bits as a backward at once.
TEST(Experts, GiveTheSameGradients_WhereMatricesHaveThemLater) {
  for (const auto& [name, experts_Nk] : choices()) {
    Layer at_once, later;
    DeferredGradients deferred;
    std::vector<std::vector<at::Tensor>> inputs;
    for (Layer* layer : {&at_once, &later}) {
      const at::Tensor x = wave({experts_Nk.size(0), kWidth}, 0.9).requires_grad_();
      const Routing routing{weights_like(experts_Nk), experts_Nk, {}};
      const at::Tensor y = experts(x, routing, layer->parameters);
      const DeferScope scope(layer == &later ? &deferred : nullptr);
      inputs.push_back(grad({y}, {x, routing.weights_Nk}, {wave(y.sizes(), 1.3)}));
    }
    EXPECT_TRUE(later.owned.gradient.isnan().all().item<bool>()) << name;
    deferred.run();
    EXPECT_TRUE(at::equal(inputs[0][0], inputs[1][0])) << name;
    EXPECT_TRUE(at::equal(inputs[0][1], inputs[1][1])) << name;
    EXPECT_TRUE(at::equal(at_once.owned.gradient, later.owned.gradient)) << name;
  }
}

TEST(Experts, LeaveFrozenMatricesWithoutGradients) {
  Layer layer({.frozen = true});
  const at::Tensor x = wave({4, kWidth}, 0.9).requires_grad_(), chosen = at::zeros({4, 1}, at::kLong);
  const Routing routing{weights_like(chosen), chosen, {}};
  EXPECT_TRUE(grad({experts(x, routing, layer.parameters)}, {x}, {x})[0].defined());
  EXPECT_TRUE(layer.owned.gradient.isnan().all().item<bool>());
}

TEST(Experts, AreNearTheirFp32Values_In16Bits) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const at::ScalarType gradient_type : {type, at::kFloat}) {
      Layer exact, rounded({.dtype = type, .gradient_dtype = gradient_type});
      exact.owned.weights.copy_(rounded.owned.weights);
      const at::Tensor chosen = choices()[4].second, x = wave({17, kWidth}, 0.9).to(type);
      const Routing routing{weights_like(chosen), chosen, {}};
      std::vector<at::Tensor> results;
      for (Layer* layer : {&exact, &rounded}) {
        const at::Tensor in = x.to(layer->owned.weights.scalar_type()).detach().requires_grad_();
        const at::Tensor y = experts(in, routing, layer->parameters);
        const at::Tensor dx = grad({y}, {in}, {at::ones_like(y)}, false, false, true)[0];
        results.insert(results.end(), {y.detach(), dx, layer->owned.gradient});
      }
      for (size_t i = 0; i < 3; ++i) {
        const at::Tensor error = (results[i + 3].to(at::kFloat) - results[i]).abs().max();
        EXPECT_LE(error.item<double>(), 0.03 * results[i].abs().max().item<double>()) << type << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace herd::nn
