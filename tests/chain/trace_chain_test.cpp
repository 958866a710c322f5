#include "herd/chain/trace_chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <set>

#include "herd/base/error.h"
#include "herd/chain/own_block.h"

namespace herd {
namespace {

constexpr int64_t kIn = 8, kHidden = 32;

Chain perceptron() {
  Chain chain;
  chain.add("up", {"x"}, [] { return torch::nn::Linear(kIn, kHidden); })
      .add_function("relu", {}, [](const Tensors& x) { return torch::relu(x[0]); })
      .add(
          "loss", {"relu", "y"}, [] { return torch::nn::Linear(kHidden, 1); },
          [](torch::nn::LinearImpl& m, const Tensors& x) {
            return Tensors{(m.forward(x[0]) - x[1]).square().sum(), torch::tensor(x[1].size(0))};
          });
  return chain;
}

Tensors batch(int64_t n, int64_t) { return {torch::randn({n, kIn}), torch::randn({n, 1})}; }

TEST(TraceChain, FindsSizesThatCountSamples_AndFlopOfProducts) {
  const spec::ChainTable chain = trace_chain(perceptron(), batch, {.samples = 4});
  for (const int64_t n : {1, 4, 7}) {
    const spec::ModelTable table = chain.at(n);
    ASSERT_EQ(table.blocks.size(), 3u);
    EXPECT_EQ(table.blocks[0].outputs[0].extents, (std::vector<spec::Extent>{{1, 1}, {kHidden}}));
    EXPECT_EQ(table.tensor_bytes({1, 0}), n * kHidden * 4);
    EXPECT_DOUBLE_EQ(table.blocks[0].forward.matmul_flops, static_cast<double>(2 * n * kIn * kHidden));
    // The batch takes no gradient, so backward has the product for the weights alone.
    EXPECT_DOUBLE_EQ(table.blocks[0].backward.matmul_flops, static_cast<double>(2 * n * kIn * kHidden));
    EXPECT_DOUBLE_EQ(table.blocks[2].forward.matmul_flops, static_cast<double>(3 * 2 * n * kHidden));
  }
}

// Rows of tokens, pairs of them, and rows of all samples in one dimension.
Chain of_tokens(int64_t added = 0) {
  Chain chain;
  chain
      .add(
          "rows", {"x"}, [] { return torch::nn::Linear(kIn, 4); },
          [](torch::nn::LinearImpl& m, const Tensors& x) {
            const at::Tensor y = m.forward(x[0]);
            return Tensors{y, y.matmul(y.transpose(1, 2)), y.flatten(0, 1), y.matmul(y.transpose(1, 2)).flatten(1)};
          })
      .add_function("longer", {"rows"},
                    [added](const Tensors& x) {
                      return torch::constant_pad_nd(x[0], {0, 0, 0, added});
                    })
      .add_function("loss", {"longer"}, [](const Tensors& x) {
        return Tensors{x[0].sum(), torch::tensor(x[0].size(0))};
      });
  return chain;
}

Tensors rows_of_tokens(int64_t n, int64_t tokens) { return {torch::randn({n, tokens, kIn})}; }

TEST(TraceChain, FindsSizesThatCountTokens_AndPlansForTheMost) {
  for (const int64_t most : {2, 7, 64}) {
    const spec::ChainTable chain =
        spec::ChainTable::parse(trace_chain(of_tokens(), rows_of_tokens, {.most_tokens = most}).text(), "test");
    const spec::ModelTable table = chain.at(3);
    const auto& tensors = table.blocks[0].outputs;
    EXPECT_EQ(table.batch[0].extents, (std::vector<spec::Extent>{{1, 1}, {1, 0, 1}, {kIn}}));
    EXPECT_EQ(tensors[0].extents, (std::vector<spec::Extent>{{1, 1}, {1, 0, 1}, {4}}));
    EXPECT_EQ(tensors[1].extents, (std::vector<spec::Extent>{{1, 1}, {1, 0, 1}, {1, 0, 1}}));
    EXPECT_EQ(tensors[2].extents, (std::vector<spec::Extent>{{1, 1, 1}, {4}}));
    EXPECT_EQ(tensors[3].extents, (std::vector<spec::Extent>{{1, 1}, {1, 0, 2}}));
    EXPECT_EQ(tensors[2].sizes(5, 6), (std::vector<int64_t>{30, 4}));
    EXPECT_EQ(table.tensor_bytes({1, 1}), 3 * most * most * 4);
    EXPECT_EQ(table.tokens, 3 * most);
  }
}

TEST(TraceChain, NamesBlockAndTensor_WhereASizeIsNoMultipleOfTheTokens) {
  try {
    trace_chain(of_tokens(1), rows_of_tokens, {.most_tokens = 8});
    FAIL() << "nine rows for eight tokens, and five for four";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kBadConfig);
    EXPECT_THAT(error.message(),
                testing::AllOf(testing::HasSubstr("tensor 0 of block \"longer\""),
                               testing::HasSubstr("[2, 5, 4] for 4 tokens to [2, 9, 4] for 8 tokens")));
  }
}

TEST(TraceChain, KeepsAGroupForEachBlockWithParameters) {
  const spec::ModelTable table = trace_chain(perceptron(), batch, {.frozen = "up.bias"}).at(2);
  ASSERT_EQ(table.groups.size(), 3u);
  EXPECT_EQ(table.groups[0].parameters[0].name, "up.weight");
  EXPECT_EQ(table.groups[0].parameters[0].sizes, (std::vector<int64_t>{kHidden, kIn}));
  EXPECT_TRUE(table.groups[1].frozen);
  EXPECT_EQ(table.blocks[1].groups, std::vector<int>{});
  EXPECT_EQ(table.parameters(), kIn * kHidden + kHidden + kHidden + 1);
}

// An embedding's gradient follows from indices. One whose hook scales it by the weights reads them, and so do signs and
// bounds of weights, which make a number of NaN.
TEST(TraceChain, FindsBlocksWhoseBackwardReadsNoWeights) {
  Chain chain;
  const auto embedding = [] { return torch::nn::Embedding(10, 4); };
  chain.add("words", {"ids"}, embedding)
      .add("hooked", {"ids"}, embedding,
           [](torch::nn::EmbeddingImpl& m, const Tensors& x) {
             at::Tensor y = m.forward(x[0]);
             if (y.requires_grad()) y.register_hook([&m](at::Tensor dy) { return dy * m.weight.detach().sum(); });
             return Tensors{y};
           })
      .add(
          "signs", {"words"}, [] { return torch::nn::Linear(4, 4); },
          [](torch::nn::LinearImpl& m, const Tensors& x) { return Tensors{x[0] + m.weight.abs().sum(1)}; })
      .add(
          "bounds", {"words"}, [] { return torch::nn::Linear(4, 4); },
          [](torch::nn::LinearImpl& m, const Tensors& x) { return Tensors{x[0] + m.weight.clamp(0).sum(1)}; })
      .add_function("sum", {"words", "hooked", "signs", "bounds"},
                    [](const Tensors& x) { return Tensors{x[0] + x[1] + x[2] + x[3]}; })
      .add("linear", {}, [] { return torch::nn::Linear(4, 4); })
      .add_function("loss", {}, [](const Tensors& x) {
        return Tensors{x[0].sum(), torch::tensor(x[0].size(0))};
      });
  const auto ids = [](int64_t n, int64_t) { return Tensors{torch::randint(10, {n, 3})}; };
  const spec::ModelTable table = trace_chain(chain, ids, {}).at(2);
  EXPECT_FALSE(table.blocks[0].backward_reads_weights);
  EXPECT_TRUE(table.blocks[1].backward_reads_weights);
  EXPECT_TRUE(table.blocks[2].backward_reads_weights);
  EXPECT_TRUE(table.blocks[3].backward_reads_weights);
  EXPECT_TRUE(table.blocks[5].backward_reads_weights);
}

TEST(TraceChain, CountsConvolutions) {
  Chain chain;
  chain.add("conv", {"x"}, [] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 5, 3).stride(2).padding(1)); })
      .add_function("loss", {}, [](const Tensors& x) {
        return Tensors{x[0].sum(), torch::tensor(x[0].size(0))};
      });
  const auto table = trace_chain(chain,
                                 [](int64_t n, int64_t) {
                                   return Tensors{torch::randn({n, 3, 8, 8})};
                                 },
                                 {})
                         .at(2);
  EXPECT_DOUBLE_EQ(table.blocks[0].forward.matmul_flops, 2.0 * 2 * 5 * 4 * 4 * 3 * 3 * 3);
  EXPECT_DOUBLE_EQ(table.blocks[0].backward.matmul_flops, table.blocks[0].forward.matmul_flops);
}

TEST(TraceChain, TextReadsBack_AndOtherTextIsRefused) {
  const spec::ChainTable chain = trace_chain(perceptron(), batch, {});
  const spec::ChainTable again = spec::ChainTable::parse(chain.text(), "test");
  EXPECT_EQ(again.text(), chain.text());
  EXPECT_EQ(again.at(5).blocks[0].graph_bytes, chain.at(5).blocks[0].graph_bytes);
  for (const char* text : {"", "{}", "[1]", "{\"herd_chain_table\": 9}"})
    EXPECT_THROW(spec::ChainTable::parse(text, "test"), Error) << text;
}

TEST(TraceChain, NotesTheBuffersThatPassesChange) {
  Chain chain;
  chain.add("norm", {"x"}, [] { return torch::nn::BatchNorm1d(kIn); })
      .add_shared<torch::nn::BatchNorm1dImpl>("again", {"norm"}, "norm",
                                              [](auto& norm, const Tensors& x) { return norm.forward(x[0]); })
      .add_function("loss", {}, [](const Tensors& x) {
        return Tensors{x[0].sum(), torch::tensor(1)};
      });
  const auto traced = trace_chain(chain, [](int64_t n, int64_t) { return Tensors{torch::randn({n, kIn})}; }, {});
  const auto table = spec::ChainTable::parse(traced.text(), "test").at(2);
  std::vector<std::string> names;
  for (const spec::ParameterShape& buffer : table.blocks[0].buffers) names.push_back(buffer.name);
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
  EXPECT_TRUE(table.blocks[1].buffers.empty());
}

TEST(TraceChain, MarksWhatTakesNoGradient) {
  Chain chain;
  chain
      .add(
          "up", {"x"}, [] { return torch::nn::Linear(kIn, kHidden); },
          [](torch::nn::LinearImpl& m, const Tensors& x) {
            const at::Tensor y = m.forward(x[0]);
            return Tensors{y, y > 0};
          })
      .add_function("loss", {"up", "up:1"}, [](const Tensors& x) {
        return Tensors{torch::where(x[1], x[0], 0.1 * x[0]).sum(), torch::tensor(x[0].size(0))};
      });
  const auto table = trace_chain(chain, [](int64_t n, int64_t) { return Tensors{torch::randn({n, kIn})}; }, {}).at(3);
  EXPECT_TRUE(table.blocks[0].outputs[0].differentiable);
  EXPECT_FALSE(table.blocks[0].outputs[1].differentiable);
  EXPECT_EQ(table.tensor_bytes({1, 1}), 3 * kHidden);
  EXPECT_EQ(table.blocks[0].outputs[1].dtype, DType::kBool);
}

TEST(TraceChain, ListsTensorsThatGraphsReferTo) {
  const auto table = trace_chain(perceptron(), batch, {}).at(3);
  EXPECT_EQ(table.blocks[0].kept, std::vector<spec::TensorId>{spec::TensorId(0)}) << "a product keeps what it reads";
  EXPECT_EQ(table.blocks[1].kept, (std::vector<spec::TensorId>{1, 2})) << "a ReLU keeps what it gives, too";
  EXPECT_EQ(table.blocks[1].graph_bytes, table.tensor_bytes({1, 0}) + table.tensor_bytes({2, 0}));
}

TEST(OwnBlock, GivesTensorsWithMemoryOfTheirOwn) {
  Chain chain;
  chain.add_function("views", {"x"}, [](const Tensors& x) {
    const at::Tensor y = 2 * x[0];
    return Tensors{x[0].narrow(1, 0, 2), y, y.detach(), y.t(), y.sum().expand({5})};
  });
  const auto block = make_own_block({.block = chain.blocks()[0], .groups = {}, .module = nullptr}, false);
  nn::Context context;
  context.samples = {0, 1};
  const at::Tensor x = torch::randn({2, 8});
  const Tensors y = block->forward({x}, context);
  EXPECT_TRUE(y[0].equal(x.narrow(1, 0, 2)));
  EXPECT_TRUE(y[3].equal(y[1].t()));
  std::set<const void*> memories = {x.storage().data()};
  for (const at::Tensor& tensor : y) {
    EXPECT_TRUE(tensor.is_contiguous());
    EXPECT_EQ(tensor.storage().nbytes(), tensor.nbytes());
    EXPECT_TRUE(memories.insert(tensor.storage().data()).second);
  }
}

}  // namespace
}  // namespace herd
