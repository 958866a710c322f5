// Operations on the device "later" against the CPU's bits.
#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>

#include "tests/device/later_device.h"

namespace herd::later {
namespace {

at::Tensor wave(at::IntArrayRef sizes, double frequency = 0.7) {
  return at::arange(c10::multiply_integers(sizes), at::kDouble).mul_(frequency).sin_().to(at::kFloat).view(sizes);
}

using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Runs a function on both devices and compares every bit.
void expect_equal_bits(const char* what, const std::vector<at::Tensor>& inputs, const Function& function) {
  install(3);
  std::vector<at::Tensor> there;
  std::vector<at::Tensor> here;
  for (const at::Tensor& input : inputs) {
    here.push_back(input.clone());
    there.push_back(input.to(device()));
  }
  const auto expected = function(here);
  const auto results = function(there);
  ASSERT_EQ(results.size(), expected.size()) << what;
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_TRUE(results[i].is_privateuseone()) << what;
    EXPECT_EQ(results[i].strides(), expected[i].strides()) << what;
    const at::Tensor result = results[i].cpu();
    EXPECT_TRUE(at::equal(result, expected[i])) << what << " result " << i << '\n' << result << '\n' << expected[i];
  }
}

TEST(LaterOperations, GiveTheBitsOfTheCpu) {
  const at::Tensor a = wave({6, 8});
  const at::Tensor b = wave({8, 5}, 0.3);
  const at::Tensor ids = at::arange(12).remainder(6).view({3, 4});
  using T = std::vector<at::Tensor>;
  expect_equal_bits("elements", {a}, [](const T& x) -> T {
    return {x[0] * 2 + 1,
            x[0].exp(),
            x[0] / 3,
            x[0].pow(2),
            x[0].abs().add(1).rsqrt(),
            -x[0],
            x[0] > 0,
            at::silu(x[0]),
            at::gelu(x[0], "tanh"),
            x[0].clamp(-0.5, 0.5),
            x[0].to(at::kBFloat16),
            x[0].to(at::kHalf)};
  });
  expect_equal_bits("sums", {a}, [](const T& x) -> T {
    return {x[0].sum(),           x[0].sum(1),
            x[0].mean({0}, true), x[0].amax(1),
            x[0].norm(),          std::get<1>(x[0].max(1)),
            x[0].argmax(0),       at::logsumexp(x[0], 1),
            at::cumsum(x[0], 1),  at::isfinite(x[0]).all()};
  });
  expect_equal_bits("products", {a, b}, [](const T& x) -> T {
    return {at::mm(x[0], x[1]), at::matmul(x[0].view({2, 3, 8}), x[1]), at::linear(x[0], x[1].t()),
            at::addmm(at::ones({5}, x[0].options()), x[0], x[1]), at::bmm(x[0].view({2, 3, 8}), x[0].view({2, 8, 3}))};
  });
  expect_equal_bits("layers", {a, wave({8}), ids}, [](const T& x) -> T {
    auto [out, mean, rstd] = at::native_layer_norm(x[0], {8}, x[1], x[1], 1e-5);
    return {out,
            mean,
            rstd,
            at::softmax(x[0], 1),
            at::log_softmax(x[0], 1),
            at::embedding(x[0], x[2]),
            at::cross_entropy_loss(x[0], x[2].flatten().slice(0, 0, 6))};
  });
  expect_equal_bits("indices", {a, ids.flatten()}, [](const T& x) -> T {
    return {x[0].index_select(0, x[1]),
            x[0].index({x[1]}),
            x[0].gather(1, x[1].view({6, 2})),
            x[0].clone().index_add_(0, x[1], at::ones({12, 8}, x[0].options())),
            x[0].clone().scatter_(1, x[1].view({6, 2}), 9.0),
            at::nonzero(x[0] > 0),
            x[0].masked_select(x[0] > 0),
            std::get<0>(x[0].sort(1)),
            std::get<1>(x[0].topk(3, 1)),
            x[0].index({x[0] > 0}),
            at::where(x[0] > 0, x[0], -x[0]),
            x[0].masked_fill(x[0] > 0, 2.0),
            at::bincount(x[1])};
  });
  expect_equal_bits("views", {a}, [](const T& x) -> T {
    return {x[0].t(),
            x[0].view({4, 12}),
            x[0].select(1, 3),
            x[0].slice(0, 1, 5, 2),
            x[0].unfold(1, 3, 2),
            x[0].expand({2, 6, 8}),
            x[0].unsqueeze(1),
            x[0].permute({1, 0}),
            x[0].t().reshape({48}),
            x[0].chunk(2, 1)[1],
            x[0].split(3)[1],
            x[0].narrow(1, 2, 3).contiguous(),
            at::cat({x[0], x[0]}, 1),
            at::stack({x[0], x[0]}),
            at::constant_pad_nd(x[0], {1, 2}),
            x[0].flip(0),
            x[0].roll(1, 0),
            x[0].tril(),
            x[0].repeat({2, 1})};
  });
  expect_equal_bits("in place", {a, wave({6, 8}, 0.2)}, [](const T& x) -> T {
    x[0].add_(x[1], 2).mul_(x[1]).select(0, 2).zero_();
    x[0].slice(1, 0, 4).copy_(x[1].slice(1, 4, 8));
    at::Tensor product = at::empty({0}, x[0].options());
    at::mm_out(product, x[0], x[1].t());
    at::Tensor half = at::empty({6, 8}, x[0].options().dtype(at::kBFloat16));
    half.copy_(x[0]);
    at::Tensor filled = at::empty({6, 6}, x[0].options());
    at::addmm_out(filled, product, x[0], x[1].t(), 0.5, 2);
    return {x[0],
            product,
            half,
            filled,
            at::zeros_like(x[0]),
            at::ones({3}, x[0].options()),
            at::full({2}, 1.5, x[0].options()),
            at::arange(7, x[0].options()),
            x[0].clone().resize_({3})};
  });
  expect_equal_bits("integers", {ids, ids + 1}, [](const T& x) -> T {
    return {x[0] + 1, x[0].remainder(4), x[0].floor_divide(x[1]), x[0].eq(2), x[0].bitwise_and(1), x[0].to(at::kFloat)};
  });
}

TEST(LaterOperations, TakeNumbersButNoOtherTensorsOfTheHost) {
  install(3);
  const at::Tensor there = at::ones({3}, device());
  EXPECT_EQ((there + at::scalar_tensor(2.0)).sum().item<float>(), 9);
  EXPECT_THROW(there + at::ones({3}), c10::Error);
  const at::Tensor indices = at::arange(2);
  EXPECT_EQ(there.index({indices}).sum().item<float>(), 2);
  EXPECT_THROW(there.index_select(0, indices), c10::Error);
}

// Returns the loss and the gradients of a small network.
std::vector<at::Tensor> train(c10::Device where, at::ScalarType type) {
  const auto to = [&](const at::Tensor& tensor) { return tensor.to(where, type).detach().requires_grad_(); };
  const at::Tensor table = to(wave({11, 16}));
  const at::Tensor qkv = to(wave({48, 16}, 0.31));
  const at::Tensor scale = to(wave({16}, 0.9));
  const at::Tensor up = to(wave({32, 16}, 0.17));
  const at::Tensor down = to(wave({16, 32}, 0.13));
  const at::Tensor ids = at::arange(20).remainder(11).view({2, 10}).to(where);
  const at::Tensor x = at::embedding(table, ids);
  const at::Tensor normed = at::layer_norm(x, {16}, scale, scale);
  const auto parts = at::linear(normed, qkv).view({2, 10, 3, 4, 4}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor attended = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
  const at::Tensor h = x + attended.transpose(1, 2).reshape({2, 10, 16});
  const at::Tensor y = h + at::linear(at::gelu(at::linear(h, up)), down);
  const at::Tensor loss = at::cross_entropy_loss(at::linear(y, table).view({20, 11}).to(at::kFloat), ids.flatten());
  const bool before = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  loss.backward();
  c10::AutogradState::get_tls_state().set_multithreading_enabled(before);
  return {loss.detach(), table.grad(), qkv.grad(), scale.grad(), up.grad(), down.grad()};
}

TEST(LaterOperations, DifferentiateAsTheCpuDoes) {
  install(5);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto expected = train(at::kCPU, type);
    const int64_t before = synchronisations();
    const auto results = train(device(), type);
    EXPECT_EQ(synchronisations() - before, 6) << "the copies of inputs";
    for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(at::equal(results[i].cpu(), expected[i])) << i;
  }
}

}  // namespace
}  // namespace herd::later
