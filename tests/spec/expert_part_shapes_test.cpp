// The blocks of a layer whose experts ranks share: together they do the work of the layer, hand on what the next one
// needs, and have room for all rows that can come.
#include <gtest/gtest.h>

#include <algorithm>

#include "herd/spec/build_model_table.h"

namespace herd::spec {
namespace {

RunFile shared_experts_run(int ep, int tp = 1) {
  RunFile run;
  run.model.kind = "moe", run.model.norm = "rmsnorm";
  run.model.layers = 2, run.model.width = 16, run.model.heads = run.model.kv_heads = 2, run.model.context = 8;
  run.model.vocab = 32, run.model.experts = 8, run.model.top_k = 3, run.model.expert_ffn = 12;
  run.model.shared_experts = 1;
  run.mesh.ep = ep, run.mesh.tp = tp;
  run.model.balance_loss = tp == 1 ? 0.01 : 0, run.model.z_loss = 0;
  return run;
}

const BlockShape& block_named(const ModelTable& table, const std::string& name) {
  return *std::ranges::find(table.blocks, name, &BlockShape::name);
}

TEST(ExpertPartShapes, DoTheWorkOfTheLayerTogether) {
  for (const int ep : {2, 4}) {
    const ModelTable whole = model_table(shared_experts_run(ep), 2), parts = program_table(shared_experts_run(ep), 2);
    EXPECT_DOUBLE_EQ(parts.flops(), whole.flops());
    EXPECT_EQ(parts.parameters(), whole.parameters());
    int blocks = 0;
    for (const BlockShape& block : parts.blocks) blocks += block.layer == 1 ? 1 : 0;
    EXPECT_EQ(blocks, whole.blocks[1].num_program_blocks);
    EXPECT_FALSE(parts.is_split());
  }
}

TEST(ExpertPartShapes, HandOnRowsWeightsAndLosses) {
  const ModelTable table = program_table(shared_experts_run(2), 2);
  const auto number = [&](const std::string& name) {
    return static_cast<int>(&block_named(table, name) - table.blocks.data());
  };
  const int first = number("h.0.route"), second = number("h.1.route");
  EXPECT_EQ(table.inputs_of(first), (std::vector<TensorId>{TensorId(first)}));
  EXPECT_EQ(table.inputs_of(first + 1), (std::vector<TensorId>{TensorId(first + 1)}));
  EXPECT_EQ(table.inputs_of(first + 2), (std::vector<TensorId>{{first + 2}, {first + 1, 1}, {first + 1, 2}}));
  EXPECT_EQ(table.inputs_of(second), (std::vector<TensorId>{{second}, {first + 1, 3}}));
  const int head = static_cast<int>(table.blocks.size()) - 1;
  EXPECT_EQ(table.inputs_of(head), (std::vector<TensorId>{{head}, {second + 1, 3}}));
  EXPECT_EQ(table.tensor_bytes({first + 1, 0}), 3 * 2 * 8 * 16 * 4);
  EXPECT_EQ(table.tensor_bytes({first + 1, 1}), 3 * 2 * 8 * 4);
}

// All tokens of P ranks may choose the experts of one, each at most as many as it has.
TEST(ExpertPartShapes, HaveRoomForAllRowsThatCanCome) {
  const auto rows = [](int ep, int tp) {
    const RunFile run = shared_experts_run(ep, tp);
    return block_named(program_table(run, 2), "h.0.experts").exchanged_bytes / (16 * 4);
  };
  EXPECT_EQ(rows(2, 1), 2 * (2 * 8) * 3);
  EXPECT_EQ(rows(4, 1), 4 * (2 * 8) * 2);
  EXPECT_EQ(rows(8, 1), 8 * (2 * 8) * 1);
  EXPECT_EQ(rows(4, 2), 4 * (2 * 8 / 2) * 2);
}

}  // namespace
}  // namespace herd::spec
