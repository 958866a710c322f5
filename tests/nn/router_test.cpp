#include "herd/nn/router.h"

#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

using torch::autograd::grad;

constexpr int64_t B = 3, T = 5, D = 8, E = 4;

struct Written {
  at::Tensor weights, losses;  // (N, k), (B, 2)
};

// The equations of router.h by autograd, for choices that are given.
Written by_autograd(const RouterStyle& style, const at::Tensor& x, const at::Tensor& weight,
                    const at::Tensor& experts) {
  const at::Tensor z = at::matmul(x.view({-1, D}), weight.t());
  const at::Tensor s = style.kind == RouterKind::kSoftmax ? z.softmax(1) : z.sigmoid();
  const at::Tensor chosen = s.gather(1, experts), p = s / s.sum(1, true);
  at::Tensor balance = at::zeros({B});
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t e = 0; e < E; ++e) {
      const double share = experts.view({B, -1})[b].eq(e).sum().item<double>() / static_cast<double>(T * style.top_k);
      balance = balance + at::one_hot(at::tensor({b}, at::kLong)[0], B).to(at::kFloat) *
                              p.view({B, T, E})[b].select(1, e).sum() * (share * static_cast<double>(E));
    }
  }
  const at::Tensor square = z.logsumexp(1).square().view({B, T}).sum(1);
  return {style.normalize_weights ? chosen / chosen.sum(1, true) : chosen, at::stack({balance, square}, 1)};
}

void expect_near(const at::Tensor& mine, const at::Tensor& theirs, const std::string& what) {
  const double largest = theirs.abs().max().item<double>();
  EXPECT_LE((mine - theirs).abs().max().item<double>(), 2e-6 * largest + 1e-7) << what;
}

TEST(Router, FollowsTheEquationsOfItsHeader_AndSoDoItsGradients) {
  for (const RouterKind kind : {RouterKind::kSoftmax, RouterKind::kSigmoid}) {
    for (const int64_t k : {1, 2, 4}) {
      for (const auto& [normalizes, capacity_factor] : {std::pair{true, 0.0}, {false, 0.0}, {true, 0.7}}) {
        const RouterStyle style{kind, k, normalizes, true, capacity_factor};
        OwnedGroup g({{"w", {E, D}, true, Init::kNormal, 1.0}});
        Parameter& w = g.group->find("w");
        const at::Tensor x = wave({B, T, D}, 0.9).requires_grad_();
        const Routing routing = route(style, x, w);
        const at::Tensor dropped = routing.experts_Nk < 0;
        EXPECT_EQ(dropped.any().item<bool>(), capacity_factor > 0);
        const Written expected =
            by_autograd(style, x, w.value(), at::where(dropped, routing.experts_Nk.bitwise_not(), routing.experts_Nk));
        const std::string what = std::to_string(static_cast<int>(kind)) + " " + std::to_string(k);
        expect_near(routing.weights_Nk, expected.weights, what + " weights");
        expect_near(routing.losses_B2, expected.losses, what + " losses");
        const at::Tensor dw = wave({B * T, k}, 1.7).masked_fill(dropped, 0), dl = wave({B, 2}, 0.3);
        const auto theirs = grad({expected.weights, expected.losses}, {x, w.value()}, {dw, dl});
        const auto mine = grad({routing.weights_Nk, routing.losses_B2}, {x, w.value()}, {dw, dl}, false, false, true);
        EXPECT_FALSE(mine[1].defined());
        expect_near(mine[0], theirs[0], what + " dx");
        expect_near(w.gradient(), theirs[1], what + " dW");
      }
    }
  }
}

TEST(Router, TakesOverChoices_AndGivesTheSameGradients) {
  const at::Tensor x = wave({B, T, D}, 0.9), dl = wave({B, 2}, 0.3);
  for (const double capacity_factor : {0.0, 0.7}) {
    const RouterStyle style{RouterKind::kSoftmax, 2, true, true, capacity_factor};
    const auto run = [&](const at::Tensor& chosen, const at::Tensor& bias) {
      OwnedGroup g({{"w", {E, D}, true, Init::kNormal, 1.0}});
      const at::Tensor input = x.detach().clone().requires_grad_();
      const Routing routing = route(style, input, g.group->find("w"), bias, chosen);
      const at::Tensor dw = wave({B * T, 2}, 1.7).masked_fill(routing.experts_Nk < 0, 0);
      const auto dx = grad({routing.weights_Nk, routing.losses_B2}, {input}, {dw, dl});
      return std::vector<at::Tensor>{routing.experts_Nk, routing.weights_Nk, routing.losses_B2, dx[0],
                                     g.group->find("w").gradient().clone()};
    };
    const std::vector<at::Tensor> first = run({}, {});
    const at::Tensor bias = at::tensor({0.0F, 9.0F, 0.0F, -9.0F});  // with which it would choose others
    EXPECT_FALSE(run({}, bias)[0].equal(first[0]));
    const std::vector<at::Tensor> again = run(first[0], bias);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(again[i].equal(first[i])) << i << " " << capacity_factor;
  }
}

TEST(Router, ChoosesTheLargest_AndTheFirstOfEqualOnes) {
  const at::Tensor scores = at::tensor({1.0F, 3.0F, 3.0F, 2.0F, /**/ 0.0F, 0.0F, 0.0F, 0.0F}).view({2, 4});
  EXPECT_TRUE(at::equal(largest_of_rows(scores, 3), at::tensor({1, 2, 3, 0, 1, 2}, at::kLong).view({2, 3})));
  EXPECT_EQ(largest_of_rows(scores.narrow(0, 0, 0), 3).sizes(), at::IntArrayRef({0, 3}));
}

// Of two choices the second one decides, and with a capacity their order does, too.
TEST(Router, FindsChoicesThatAnotherRoundingMayChange) {
  const at::Tensor scores = at::tensor({3.0F, 2.0F, 1.0F, 2.0F - 5e-7F, /**/ 3.0F, 3.0F, 1.0F, 2.0F,  //
                                        /**/ 3.0F, 1.0F, 2.0F, 2.0F - 5e-6F, /**/ 1.0F, 1.0F, 3.0F, 2.0F})
                                .view({4, 4});
  CloseRows last, all{.of_all = true};
  EXPECT_TRUE(at::equal(largest_of_rows(scores, 2, {}, &last), largest_of_rows(scores, 2)));
  EXPECT_EQ(last.close_N, (std::vector<uint8_t>{1, 0, 0, 0}));
  largest_of_rows(scores, 2, {}, &all);
  EXPECT_EQ(all.close_N, (std::vector<uint8_t>{1, 1, 0, 0}));
  largest_of_rows(scores, 4, {}, &last);  // all are chosen
  EXPECT_EQ(last.close_N, (std::vector<uint8_t>{0, 0, 0, 0}));
  largest_of_rows(scores, 2, at::tensor({0.0F, -1.0F + 1e-7F, 0.0F, 0.0F}), &last);  // bias included
  EXPECT_EQ(last.close_N, (std::vector<uint8_t>{0, 1, 0, 0}));
}

TEST(Router, TakesChoicesOfAnotherRun_AndDropsOfThemAsOfItsOwn) {
  OwnedGroup g({{"w", {E, D}, true, Init::kNormal, 1.0}});
  const at::Tensor x = wave({B, T, D}, 0.9), forced = at::tensor({3, 1}, at::kLong).repeat({B * T, 1});
  const Routing free = route({RouterKind::kSoftmax, 2, false}, x, g.group->find("w"), {}, {}, {}, forced.clone());
  EXPECT_TRUE(free.experts_Nk.equal(forced));
  const at::Tensor scores = at::matmul(x.view({-1, D}), g.group->find("w").value().t()).softmax(1);
  EXPECT_TRUE(at::allclose(free.weights_Nk, scores.gather(1, forced), 1e-5));
  EXPECT_EQ(free.close_N.size(), static_cast<size_t>(B * T));
  const RouterStyle style{RouterKind::kSoftmax, 2, false, false, 1};  // three tokens of each five
  const Routing some = route(style, x, g.group->find("w"), {}, {}, {}, forced.clone());
  const at::Tensor late = at::arange(B * T).remainder(T).ge(3).unsqueeze(1).expand({-1, 2});
  EXPECT_TRUE(some.experts_Nk.equal(at::where(late, forced.bitwise_not(), forced)));
}

TEST(Router, ChoosesByTheBias_AndWeighsByTheScore) {
  OwnedGroup g({{"w", {E, D}, true, Init::kNormal, 1.0}});
  const RouterStyle style{RouterKind::kSigmoid, 2, false, false};
  const at::Tensor x = wave({B, T, D}, 0.9), bias = at::tensor({0.0F, 9.0F, 0.0F, -9.0F});
  const Routing routing = route(style, x, g.group->find("w"), bias);
  EXPECT_TRUE(routing.experts_Nk.select(1, 0).eq(1).all().item<bool>());
  EXPECT_FALSE(routing.experts_Nk.eq(3).any().item<bool>());
  const at::Tensor scores = at::matmul(x.view({-1, D}), g.group->find("w").value().t()).sigmoid();
  EXPECT_TRUE(at::allclose(routing.weights_Nk, scores.gather(1, routing.experts_Nk), 1e-5));
}

// Two sequences of three tokens and two experts, of which each takes two tokens.
TEST(Router, DropsLateTokensOfASequence_SecondChoicesFirst) {
  const at::Tensor experts = at::tensor({0, 1, 1, 0, 0, 1, /**/ 0, 1, 0, 1, 0, 1}, at::kLong).view({6, 2});
  drop_beyond(2, experts, 2, 2);
  EXPECT_TRUE(at::equal(experts, at::tensor({0, 1, 1, ~0, 0, ~1, /**/ 0, 1, 0, 1, ~0, ~1}, at::kLong).view({6, 2})));
}

// A loss of 1 a token means that all experts have equal shares, whatever k is.
TEST(Router, LosesOneATokenForBalance_WhereScoresAreEqual) {
  OwnedGroup g({{"w", {E, D}}});
  for (const int64_t k : {1, 3}) {
    const Routing routing = route({RouterKind::kSoftmax, k, true, true}, wave({B, T, D}, 0.9), g.group->find("w"));
    EXPECT_TRUE(at::allclose(routing.losses_B2.select(1, 0), at::full({B}, static_cast<float>(T))));
  }
}

// The losses of a sequence are the same alone and beside others, so that micro-batches may be of any size.
TEST(Router, LosesTheSame_WhateverOtherSequencesThereAre) {
  OwnedGroup g({{"w", {E, D}, true, Init::kNormal, 1.0}});
  const at::Tensor x = wave({B, T, D}, 0.9);
  const RouterStyle style{RouterKind::kSoftmax, 2, true, true};
  const at::Tensor together = route(style, x, g.group->find("w")).losses_B2;
  for (int64_t b = 0; b < B; ++b)
    EXPECT_TRUE(at::allclose(route(style, x.narrow(0, b, 1), g.group->find("w")).losses_B2[0], together[b], 1e-6));
  EXPECT_EQ(route(style, x.narrow(0, 0, 0), g.group->find("w")).losses_B2.sizes(), at::IntArrayRef({0, 2}));
}

}  // namespace
}  // namespace herd::nn
