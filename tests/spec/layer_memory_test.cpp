#include "herd/spec/layer_memory_internal.h"

#include <gtest/gtest.h>

namespace herd::spec {
namespace {

LayerSizes sizes() {
  return {.B = 3, .T = 40, .S = 40, .R = 120, .D = 96, .A = 96, .K = 96, .F = 400, .heads = 6, .key_heads = 6};
}

int64_t backward_most(const LayerSizes& sizes, Halves halves = Halves::kTogether) {
  HeldBytes held;
  LayerMemory(sizes).backward(held, halves);
  return held.most();
}

TEST(HeldBytes, FindTheMostThatIsHeldAtATime) {
  HeldBytes held;
  held.take(5);
  held.give(3);
  held.take_briefly(2);
  EXPECT_EQ(held.most(), 5);
  held.take_briefly(4);
  EXPECT_EQ(held.most(), 6);
  EXPECT_EQ(held.held(), 2);
}

TEST(LayerMemory, HoldsMostInTheFeedForwardPart_AsItsHeaderSays) {
  LayerSizes s = sizes();
  s.has_biases = false;
  EXPECT_EQ(backward_most(s), s.R * s.F * 4);
  s.feed = Feed::kSwiGlu;
  EXPECT_EQ(backward_most(s), 2 * s.R * s.F * 4);
}

TEST(LayerMemory, BackwardEndsWithTheInputsGradientInPlaceOfTheGraph) {
  LayerSizes s = sizes();
  for (const bool dropout : {false, true}) {
    s.dropout = s.is_math = dropout;
    const LayerMemory memory(s);
    HeldBytes forward, backward;
    memory.forward(forward);
    memory.backward(backward, Halves::kTogether);
    const int64_t rows = s.R * s.D * 4;
    const int64_t graph_and_output = forward.held();
    EXPECT_EQ(backward.held(), rows + 2 * memory.norm_weights() - (graph_and_output - rows)) << dropout;
  }
}

TEST(LayerMemory, HoldsOneMatrixOfScoresMoreInBackward_AndThreeWhereItIsRecomputed) {
  LayerSizes s = sizes();
  s.dropout = s.is_math = true;
  s.F = 8, s.T = s.S = 400, s.R = 1200;
  const int64_t matrix = s.B * s.heads * s.T * s.S * 4, rows = s.R * s.D * 4;
  EXPECT_NEAR(static_cast<double>(backward_most(s)), static_cast<double>(matrix), 4.0 * static_cast<double>(rows));
  s.recomputes_attention = true;
  EXPECT_NEAR(static_cast<double>(backward_most(s)), 3.0 * static_cast<double>(matrix),
              8.0 * static_cast<double>(rows));
}

}  // namespace
}  // namespace herd::spec
