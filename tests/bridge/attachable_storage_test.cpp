#include "herd/bridge/attachable_storage.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"

namespace herd {
namespace {

constexpr int64_t kElements = 12;

at::Tensor weight_view(const AttachableStorage& storage) {
  return storage.flat().view({3, 4}).detach().requires_grad_();
}

struct Attachable : testing::Test {
  AttachableStorage storage{kElements, at::kFloat, at::kCPU};
  at::Tensor weight = weight_view(storage);
  at::Tensor memory = at::arange(kElements, at::kFloat) * 0.37f;
  at::Tensor x = at::arange(8, at::kFloat).view({2, 4}).sin().requires_grad_();
  at::Tensor dy = at::arange(6, at::kFloat).view({2, 3}).cos();
  void SetUp() override { storage.detach(); }
};

TEST_F(Attachable, ViewsReadAndWriteTheAttachedMemory) {
  storage.attach(memory);
  EXPECT_TRUE(at::equal(weight.view({-1}), memory));
  {
    at::NoGradGuard no_grad;
    weight.fill_(5);
  }
  EXPECT_EQ(memory[7].item<float>(), 5);
  EXPECT_EQ(weight.data_ptr(), memory.data_ptr());
}

TEST_F(Attachable, BackwardGivesTheSameBits_WhenAttachedElsewhereInBetween) {
  storage.attach(memory);
  const auto expected = torch::autograd::grad({at::linear(x, weight).tanh()}, {x, weight}, {dy});
  const at::Tensor y = at::linear(x, weight).tanh();
  const at::Tensor elsewhere = memory.clone();
  storage.detach();
  memory.fill_(std::nanf(""));  // whoever still read the old place would see it
  storage.attach(elsewhere);
  const auto got = torch::autograd::grad({y}, {x, weight}, {dy});
  EXPECT_TRUE(at::equal(got[0], expected[0]));
  EXPECT_TRUE(at::equal(got[1], expected[1]));
}

TEST_F(Attachable, UseAfterDetachThrows_ForwardAndBackward) {
  storage.attach(memory);
  const at::Tensor y = at::linear(x, weight);
  storage.detach();
  EXPECT_FALSE(storage.attached());
  EXPECT_THROW(at::linear(x, weight), c10::Error);
  EXPECT_THROW(weight.add(1), c10::Error);
  EXPECT_THROW(torch::autograd::grad({y}, {x}, {dy}), c10::Error);
}

TEST_F(Attachable, BackwardNoticesAWriteSinceForward) {
  storage.attach(memory);
  const at::Tensor through_torch = at::linear(x, weight);
  storage.flat().add_(1);
  EXPECT_THROW(torch::autograd::grad({through_torch}, {x}, {dy}), c10::Error);
  const at::Tensor past_torch = at::linear(x, weight);
  storage.mark_written();
  EXPECT_THROW(torch::autograd::grad({past_torch}, {x}, {dy}), c10::Error);
}

TEST_F(Attachable, HoldsTheMemoryUntilDetachedAndNoLonger) {
  auto owner = std::make_shared<std::vector<float>>(kElements, 2.0f);
  std::weak_ptr<std::vector<float>> seen = owner;
  storage.attach(owner->data(), owner);
  owner.reset();
  EXPECT_FALSE(seen.expired());
  EXPECT_EQ(weight.sum().item<float>(), 24.0f);
  storage.detach();
  EXPECT_TRUE(seen.expired());
}

TEST_F(Attachable, RefusesMemoryThatDoesNotFit) {
  for (const at::Tensor& bad : {at::zeros({kElements + 1}), at::zeros({kElements}, at::kDouble),
                                at::zeros({2 * kElements}).slice(0, 0, 2 * kElements, 2)}) {
    try {
      storage.attach(bad);
      ADD_FAILURE() << "took it";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kBadConfig);
      EXPECT_NE(error.message().find("12 Float"), std::string::npos) << error.message();
      EXPECT_NE(error.message().find("fix:"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace herd
