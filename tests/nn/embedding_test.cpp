#include "herd/nn/embedding.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

TEST(Embedding, AddsTheRowsOfRepeatedTokens) {
  OwnedGroup g({{"w", {6, 4}, true, Init::kNormal, 0.3}});
  Parameter& w = g.group->find("w");
  const at::Tensor ids = at::tensor({3, 0, 3, 5}, at::kLong).view({2, 2}), dy = at::ones({2, 2, 4});
  for (float times = 1; times <= 2; ++times) {
    const at::Tensor y = embedding(ids, w);
    EXPECT_TRUE(at::equal(y[1][1], w.value()[5]));
    torch::autograd::grad({y}, {w.value()}, {dy}, false, false, true);
    const at::Tensor rows = at::tensor({1.f, 0.f, 0.f, 2.f, 0.f, 1.f}) * times;
    EXPECT_TRUE(at::equal(w.gradient(), rows.unsqueeze(1).expand({6, 4})));
  }
}

TEST(Embedding, NamesTheVocabulary_WhenAnIdIsOutside) {
  OwnedGroup g({{"tokens", {6, 4}, true, Init::kNormal, 0.3}});
  for (int64_t bad : {6, -1}) {
    try {
      embedding(at::tensor({0, 1}, at::kLong) + bad, g.group->find("tokens"));
      if (bad == 6) ADD_FAILURE() << "took an id past the vocabulary";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kBadConfig);
      EXPECT_NE(error.message().find("tokens has rows [0, 6)"), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace herd::nn
