// The parts of a layer whose ranks share tokens, with an all-to-all by hand between them, are the whole layer: outputs,
// input gradients and the sum of the ranks' weight gradients.
#include "herd/nn/context_parts.h"

#include <gtest/gtest.h>

#include "herd/nn/run_block.h"
#include "test_tensors_internal.h"

namespace herd::nn {
namespace {

TransformerShape shape_of(int64_t heads, int64_t kv_heads, bool llama, double dropout) {
  TransformerShape shape{.width = 24, .heads = heads, .ffn = 20, .kv_heads = kv_heads, .head_width = 4};
  shape.dropout = dropout;
  if (llama)
    shape.norm = {NormKind::kRmsNorm}, shape.gated = true, shape.biases = false, shape.rotary = Rotary{.theta = 50};
  return shape;
}

Context context_of(int64_t tokens, int place, int parts) {
  return {.training = true,
          .seed = 1,
          .step = 2,
          .samples = {7, 9},
          .layer = 1,
          .cut = {.tokens = tokens, .place = place, .parts = parts}};
}

int64_t first_of(const TokenCut& cut) { return cut.spans().at(0).begin; }

at::Tensor own_rows(const at::Tensor& x_BTD, const TokenCut& cut) {
  at::Tensor own = at::zeros({x_BTD.size(0), cut.size(), x_BTD.size(2)});
  const int64_t count = std::min(cut.size(), cut.tokens - first_of(cut));
  if (count > 0) own.narrow(1, 0, count).copy_(x_BTD.narrow(1, first_of(cut), count));
  return own;
}

Tuple exchanged(const Tuple& by_rank) {
  Tuple out;
  for (size_t p = 0; p < by_rank.size(); ++p) {
    Tuple slices;
    for (const at::Tensor& from : by_rank) slices.push_back(from.select(0, static_cast<int64_t>(p)));
    out.push_back(at::stack(slices));
  }
  return out;
}

class OnRanks : public testing::TestWithParam<int> {};

TEST_P(OnRanks, PartsAreTheWholeLayer) {
  const int P = GetParam();
  for (const int64_t T : {1, 5, 6, 13}) {
    for (const bool llama : {false, true}) {
      for (const int64_t keys : {2 * P, P, 1}) {
        for (const double p : {0.0, 0.25}) {
          if (T < P) continue;
          const TransformerShape shape = shape_of(2 * P, keys, llama, p);
          const std::vector<ParameterSpec> parameters = transformer_parameters("h.", shape, 2);
          OwnedGroup whole_group(parameters);
          const auto whole = LayerParts{shape}.make(
              "h", "h.", {"norm_1", "attention", "add_1", "norm_2", "mlp", "add_2"}, {whole_group.group});
          const at::Tensor x = wave({2, T, 24}, 0.31), dy = wave({2, T, 24}, 0.77);
          Context all = context_of(T, 0, 1);
          Graph whole_graph = run_forward(*whole, {x}, all);
          const at::Tensor y = take_outputs(whole_graph)[0];
          const at::Tensor dx = run_backward(std::move(whole_graph), {dy})[0];

          std::vector<std::unique_ptr<OwnedGroup>> groups;
          std::vector<std::shared_ptr<Block>> projections, attentions, outputs;
          std::vector<Context> contexts;
          std::vector<Graph> g1(P), g2(P), g3(P);
          Tuple rows, qkv, attended, dqkv(P), dattended(P), dx_of_sum(P);
          for (int r = 0; r < P; ++r) {
            groups.push_back(std::make_unique<OwnedGroup>(parameters));
            LayerParts layer{.shape = shape, .context_ranks = P};
            projections.push_back(layer.make("h.qkv", "h.", {"norm_1", "qkv"}, {groups[r]->group}));
            attentions.push_back(std::make_shared<HeadAttention>("h.attention", shape, P));
            outputs.push_back(
                layer.make("h.output", "h.", {"projection", "add_1", "norm_2", "mlp", "add_2"}, {groups[r]->group}));
            contexts.push_back(context_of(T, r, P));
            rows.push_back(own_rows(x, contexts[r].cut));
            g1[r] = run_forward(*projections[r], {rows[r]}, contexts[r]);
            qkv.push_back(take_outputs(g1[r])[0]);
          }
          qkv = exchanged(qkv);
          for (int r = 0; r < P; ++r) {
            g2[r] = run_forward(*attentions[r], {qkv[r]}, contexts[r]);
            attended.push_back(take_outputs(g2[r])[0]);
          }
          attended = exchanged(attended);
          double worst = 0;
          const auto compare = [&](const at::Tensor& a, const at::Tensor& b) {
            if (a.numel() > 0) worst = std::max(worst, (a - b).abs().max().item<double>());
          };
          for (int r = 0; r < P; ++r) {
            g3[r] = run_forward(*outputs[r], {rows[r], attended[r]}, contexts[r]);
            const at::Tensor own = take_outputs(g3[r])[0];
            const int64_t count = std::clamp<int64_t>(T - first_of(contexts[r].cut), 0, own.size(1));
            compare(own.narrow(1, 0, count), own_rows(y, contexts[r].cut).narrow(1, 0, count));
            const Tuple gradients = run_backward(std::move(g3[r]), {own_rows(dy, contexts[r].cut)});
            dx_of_sum[r] = gradients[0], dattended[r] = gradients[1];
          }
          dattended = exchanged(dattended);
          for (int r = 0; r < P; ++r) dqkv[r] = run_backward(std::move(g2[r]), {dattended[r]})[0];
          dqkv = exchanged(dqkv);
          at::Tensor sum = at::zeros_like(whole_group.gradient);
          for (int r = 0; r < P; ++r) {
            const at::Tensor own = run_backward(std::move(g1[r]), {dqkv[r]})[0] + dx_of_sum[r];
            const int64_t count = std::clamp<int64_t>(T - first_of(contexts[r].cut), 0, own.size(1));
            compare(own.narrow(1, 0, count), own_rows(dx, contexts[r].cut).narrow(1, 0, count));
            sum += groups[r]->gradient;
          }
          compare(sum, whole_group.gradient);
          EXPECT_LT(worst, 2e-5) << P << " ranks, " << T << " tokens, " << keys << " key heads, llama " << llama
                                 << ", dropout " << p;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, OnRanks, testing::Values(1, 2, 3, 4, 5, 6, 7));

// What has come by an all-to-all goes once attention or the projection has it in the order of its tokens.
TEST(ContextParts, DontHoldWhatTheyReadInTheOrderOfRanks) {
  constexpr int P = 2;
  const TransformerShape shape = shape_of(2 * P, P, false, 0);
  OwnedGroup group(transformer_parameters("h.", shape, 2));
  LayerParts layer{.shape = shape, .context_ranks = P};
  const auto output = layer.make("h.output", "h.", {"projection", "add_1", "norm_2", "mlp", "add_2"}, {group.group});
  HeadAttention attention("h.attention", shape, P);
  const Context context = context_of(6, 0, P);
  const at::Tensor qkv = wave({P, 2, 3, 16}, 0.3).clone(), attended = wave({P, 2, 3, 8}, 0.4).clone(),
                   rows = wave({2, 3, 24}, 0.5).clone();
  const Graph of_attention = run_forward(attention, {qkv}, context),
              of_output = run_forward(*output, {rows, attended}, context);
  EXPECT_EQ(qkv.storage().use_count(), 1);
  EXPECT_EQ(attended.storage().use_count(), 1);
  EXPECT_GT(rows.storage().use_count(), 1) << "an input that the graph refers to";
}

TEST(TokenCut, GivesEachTokenToOneRank_AndPaddingBehindTheLast) {
  const at::Tensor ids = at::arange(20, at::kLong).view({2, 10});
  for (const int parts : {1, 2, 3, 4, 7}) {
    Tuple all;
    for (int place = 0; place < parts; ++place) {
      const TokenCut cut{.tokens = 10, .place = place, .parts = parts};
      all.push_back(own_columns(ids, cut, -1));
      EXPECT_EQ(all.back().size(1), (10 + parts - 1) / parts);
    }
    const at::Tensor joined = at::cat(all, 1);
    EXPECT_TRUE(at::equal(joined.narrow(1, 0, 10), ids));
    EXPECT_TRUE((joined.narrow(1, 10, joined.size(1) - 10) == -1).all().item<bool>());
  }
}

// Of 2P ranges, rank r has r and 2P - 1 - r, so that under a causal mask all ranks have as many pairs of tokens.
TEST(TokenCut, GivesAZigzagEqualWork) {
  for (const int parts : {1, 2, 3, 5}) {
    for (const int64_t tokens : {int64_t{6} * parts, int64_t{6} * parts - 1}) {
      std::vector<int64_t> seen;
      for (int place = 0; place < parts; ++place) {
        const TokenCut cut{.tokens = tokens, .place = place, .parts = parts, .zigzag = true};
        int64_t pairs = 0;
        for (const auto& [begin, count] : cut.spans()) {
          for (int64_t token = begin; token < begin + count; ++token) seen.push_back(token), pairs += token + 1;
        }
        EXPECT_EQ(cut.size(), 6);
        EXPECT_EQ(pairs, 3 * (6 * parts + 1)) << "rank " << place << " of " << parts;
        EXPECT_EQ(cut.spans()[0].begin, 3 * place);
        EXPECT_EQ(cut.spans()[1].begin, 3 * (2 * parts - 1 - place));
      }
      std::sort(seen.begin(), seen.end());
      for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i));
      EXPECT_EQ(seen.size(), static_cast<size_t>(6 * parts));
    }
  }
}

}  // namespace
}  // namespace herd::nn
