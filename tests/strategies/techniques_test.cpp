#include "herd/strategies/techniques.h"

#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/strategy_table.h"
#include "tests/support/expect_error.h"

namespace herd::strategies {
namespace {

std::string refused(const std::string& setting) {
  return not_supported(spec::parse_run_text("", "test", std::vector<std::string>{setting}));
}

TEST(Techniques, RefuseWhatNoRowSupports_AndListWhatThereIs) {
  EXPECT_EQ(refused("strategy.context=hybrid"),
            "strategy.context = \"hybrid\" is not in this version\n"
            "  fix: strategy.context = \"all_to_all\" or \"ring\"");
  EXPECT_EQ(refused("model.kind=t5"),
            "model.kind = \"t5\" is not in this version\n"
            "  fix: model.kind = \"gpt\" or \"llama\" or \"bert\" or \"moe\"");
  for (const std::string axis : {"tp", "cp"}) {
    const std::string text = "[model]\nkind = \"bert\"\n[mesh]\n" + axis + " = 2\n";
    EXPECT_EQ(not_supported(spec::parse_run_text(text, "test")),
              "mesh." + axis + " = 2 with model.kind = \"bert\" is not in this version\n  fix: mesh." + axis + " = 1");
  }
  EXPECT_EQ(refused("comm.transport=inproc"),
            "comm.transport = \"inproc\" is not in this version\n  fix: comm.transport = \"auto\" or \"shm\"");
  spec::RunFile run;
  run.strategy.context = "hybrid";
  EXPECT_ERROR(trainable_layout(run, 2), Code::kBadConfig, "strategy.context = \"hybrid\" is not in this version");
  EXPECT_NO_THROW(spec::resolve_mesh(run, 2));
}

TEST(Techniques, SupportWhatRowsBring) {
  for (const char* setting : {"strategy.zero=1",
                              "strategy.zero=2",
                              "strategy.zero=3",
                              "strategy.offload=states",
                              "strategy.precision=bf16",
                              "strategy.recompute=every:2",
                              "strategy.pipeline=zero_bubble_v",
                              "mesh.tp=2",
                              "mesh.pp=2",
                              "mesh.fsdp=2",
                              "mesh.cp=2",
                              "mesh.ep=2",
                              "strategy.prefetch=2",
                              "strategy.order=layer_major",
                              "strategy.keep_whole=2",
                              "strategy.auto=true",
                              "strategy.bucket=1MiB",
                              "strategy.sync=server",
                              "strategy.sync=server_async",
                              "strategy.staleness=2",
                              "strategy.schedule=priority",
                              "strategy.partition_bytes=4096",
                              "strategy.credit=2",
                              "strategy.gather_codec=int8",
                              "strategy.secondary_shard=true",
                              "strategy.shard=layers",
                              "mesh.ranks_per_host=2"})
    EXPECT_EQ(refused(setting), "") << setting;
  EXPECT_EQ(not_supported(spec::parse_run_text("[strategy]\noffload = \"window\"\ndirect_host = \"h.*\"\n", "test")),
            "");
  for (const char* codec : {"bf16", "topk", "int8", "int4"})
    EXPECT_EQ(refused("strategy.compression=" + std::string(codec)), "") << codec;
  for (const char* setting : {"ratio=0.5", "levels=quantiles", "warmup=2", "exclude=wte.*"})
    EXPECT_EQ(refused("strategy.compression_" + std::string(setting)), "") << setting;
}

// The proof must not believe a row that it is not needed.
TEST(Techniques, EstablishTheSame_WhetherAskedOrNot) {
  spec::RunFile run;
  run.mesh.pp = 2;
  const spec::Layout layout = trainable_layout(run, 4);
  const spec::ModelTable model = spec::program_table(run, layout.micro_batch);
  const StepContext step(run, model, layout);
  program::Proof proof = {
      .data_ranks_summed = false, .stages_summed = false, .rows_summed = false, .copies_summed = false};
  for (const Technique& row : techniques()) {
    if (row.extend_proof != nullptr) row.extend_proof(step, proof);
  }
  EXPECT_TRUE(proof.data_ranks_summed && proof.staged && proof.stages_summed && proof.rows_summed &&
              proof.copies_summed);
  EXPECT_TRUE(proof.clipped);
  EXPECT_FALSE(proof.blocks_split);
}

TEST(Techniques, SizeThePoolsOfTheirBuffers) {
  spec::RunFile run;
  EXPECT_EQ(slot_rules(run).gather_buffers, 2) << "one pass ahead where the number is open";
  run.strategy.prefetch = 3;
  EXPECT_EQ(slot_rules(run).gather_buffers, 4);
  const int gradient_buffers = slot_rules(run).gradient_buffers;
  const AddedTechnique own(
      {.name = "made up",
       .set_pool_sizes = [](const spec::RunFile& of,
                            program::SlotRules& rules) { rules.gradient_buffers += static_cast<int>(of.mesh.fsdp); }},
      "zero3");
  EXPECT_EQ(slot_rules(run).gradient_buffers, gradient_buffers + 1);
  EXPECT_EQ(slot_rules(run).gather_buffers, 4);
}

TEST(Techniques, AreAddedByName_AsLongAsTheyAreHeld) {
  const size_t before = techniques().size();
  {
    const AddedTechnique own({.name = "made up", .supports = {{"strategy.context", {std::string("hybrid")}}}},
                             "recompute");
    const auto row = std::ranges::find(techniques(), "made up", &Technique::name);
    ASSERT_NE(row, techniques().end());
    EXPECT_EQ((row - 1)->name, "recompute");
    EXPECT_EQ(refused("strategy.context=hybrid"), "");
    EXPECT_ERROR(AddedTechnique({.name = "made up"}, "recompute"), Code::kBadConfig,
                 "there is a technique \"made up\"");
    EXPECT_ERROR(AddedTechnique({.name = "other"}, "recompte"), Code::kBadConfig, "no technique \"recompte\"",
                 "micro-batches, ");
  }
  EXPECT_EQ(techniques().size(), before);
  EXPECT_NE(refused("strategy.context=hybrid"), "");
}

}  // namespace
}  // namespace herd::strategies
