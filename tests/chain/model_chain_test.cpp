#include "herd/chain/model_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "herd/base/error.h"

namespace herd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

torch::nn::Linear linear() { return torch::nn::Linear(4, 4); }

template <class Make>
std::string error_of(const Make& make) {
  try {
    make();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    return error.message();
  }
  return "";
}

TEST(Chain, ReadsTheBlockBefore_EarlierBlocksAndTheBatch) {
  Chain chain;
  chain.add("first", {"x", "mask"}, linear, [](torch::nn::LinearImpl& m, const Tensors& x) { return m.forward(x[0]); })
      .add("second", {}, linear)
      .add("third", {"first:1", "y", "second"}, linear,
           [](torch::nn::LinearImpl& m, const Tensors& x) { return m.forward(x[0]); });
  EXPECT_THAT(chain.batch_names(), ElementsAre("x", "mask", "y"));
  EXPECT_THAT(chain.inputs_of(0), ElementsAre(spec::TensorId{0, 0}, spec::TensorId{0, 1}));
  EXPECT_THAT(chain.inputs_of(1), ElementsAre(spec::TensorId{1, 0}));
  EXPECT_THAT(chain.inputs_of(2), ElementsAre(spec::TensorId{1, 1}, spec::TensorId{0, 2}, spec::TensorId{2, 0}));
}

TEST(Chain, RunsAModuleOrAFunction) {
  Chain chain;
  chain.add("module", {"x"}, linear).add_function("sum", {}, [](const Tensors& x) { return x[0].sum(); });
  const auto module = chain.blocks()[0].make();
  const at::Tensor x = torch::ones({2, 4});
  EXPECT_EQ(chain.blocks()[0].run(module.get(), {x})[0].sizes(), at::IntArrayRef({2, 4}));
  EXPECT_EQ(chain.blocks()[1].run(nullptr, {x})[0].item<double>(), 8);
}

TEST(Chain, SharesTheModuleOfAnEarlierBlock) {
  Chain chain;
  chain.add("words", {"x"}, linear)
      .add_shared<torch::nn::LinearImpl>(
          "head", {}, "words", [](torch::nn::LinearImpl& m, const Tensors& x) { return x[0].matmul(m.weight); });
  EXPECT_EQ(chain.blocks()[1].module, "words");
  EXPECT_NE(chain.blocks()[1].make(), nullptr);
  chain.add_shared<torch::nn::EmbeddingImpl>("other", {}, "words",
                                             [](torch::nn::EmbeddingImpl&, const Tensors& x) { return x[0]; });
  const auto module = chain.blocks()[2].make();
  EXPECT_THAT(error_of([&] {
                chain.blocks()[2].run(module.get(), {torch::ones({2, 4})});
              }),
              AllOf(HasSubstr("block \"other\" takes the module of block \"words\" for a torch::nn::EmbeddingImpl"),
                    HasSubstr("it is a torch::nn::LinearImpl\n  fix: that type in")));
}

TEST(Chain, RefusesAFactoryThatGivesOneModuleTwice) {
  Chain chain;
  const torch::nn::Linear made_outside(4, 4);
  chain.add("outside", {"x"}, [made_outside] { return made_outside; }).add("inside", {}, linear);
  const auto first = chain.blocks()[0].make(), other = chain.blocks()[1].make();
  EXPECT_THAT(error_of([&] { chain.blocks()[0].make(); }),
              AllOf(HasSubstr("block \"outside\" gives the same module again"), HasSubstr("fix: ")));
  EXPECT_NE(chain.blocks()[1].make(), other);
}

TEST(Chain, RefusesNamesThatAreTakenOrNone_AndBlocksThatComeLater) {
  Chain chain;
  chain.add("a", {"x"}, linear);
  EXPECT_THAT(error_of([&] { chain.add("a", {}, linear); }), HasSubstr("two blocks are named \"a\""));
  EXPECT_THAT(error_of([&] { chain.add("b:1", {}, linear); }), HasSubstr("without ':'"));
  EXPECT_THAT(error_of([&] {
                chain.add_shared<torch::nn::LinearImpl>("c", {}, "none", [](auto&, const Tensors& x) { return x[0]; });
              }),
              HasSubstr("no earlier block \"none\""));
  Chain circle;
  circle.add("a", {"b"}, linear).add("b", {}, linear);
  EXPECT_THAT(error_of([&] { circle.inputs_of(0); }), HasSubstr("comes later"));
  Chain twice;
  twice.add("a", {"x", "x"}, linear);
  EXPECT_THAT(error_of([&] { twice.inputs_of(0); }), HasSubstr("twice"));
  Chain nothing;
  nothing.add("a", {}, linear);
  EXPECT_THAT(error_of([&] { nothing.inputs_of(0); }), HasSubstr("reads nothing"));
}

}  // namespace
}  // namespace herd
