// A technique of one's own takes one file and one row: its run file is refused without the row, and with it the run is
// proved, trained and searched for like any other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/base/error.h"
#include "herd/planner/variants_that_fit.h"
#include "herd/program/memory_bound.h"
#include "herd/spec/build_model_table.h"
#include "herd/strategies/recompute.h"
#include "tests/support/expect_error.h"
#include "train_in_threads.h"

namespace herd::train {
namespace {

using strategies::AddedTechnique;
using strategies::RankCounts;
using strategies::StepContext;
using strategies::Strategy;
using strategies::Technique;
using testing::HasSubstr;

// Recompute of every block, under another name: it shows in the program and changes no bit of what is trained.
class MadeUp final : public Strategy {
 public:
  explicit MadeUp(const StepContext& step) : recompute_(1, step.layers, step.stage_of_blocks) {}
  std::string name() const override { return "made up"; }
  program::Program rewrite(program::Program step) const override { return recompute_.rewrite(std::move(step)); }

 private:
  strategies::Recompute recompute_;
};

Technique made_up_row() {
  return {.name = "made up",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            const bool asks = step.run.strategy.context == "hybrid" && step.run.strategy.recompute == "none";
            return asks ? std::make_unique<MadeUp>(step) : nullptr;
          },
          .supports = {{"strategy.context", {"hybrid"}}},
          .alternatives = {
              {.key = "strategy.context", .automatic = true, .values = [](const spec::RunFile& run, const RankCounts&) {
                 return strategies::values_if(run.strategy.context == "all_to_all", "hybrid");
               }}}};
}

spec::RunFile asking() { return tiny_run("[strategy]\ncontext = \"hybrid\"\n"); }

int64_t needed(const spec::RunFile& run) {
  const spec::Layout layout = strategies::trainable_layout(run, 1);
  const auto step = strategies::compile_step(run, spec::program_table(run, layout.micro_batch), layout, 0);
  return peak_bound(step, program::Tier::kDevice).bytes + strategies::uncounted_bytes(step);
}

TEST(MadeUpTechnique, IsRefusedWithoutItsRow_AndTrainsWithIt) {
  EXPECT_ERROR(train_in_threads(asking(), 2, 1), Code::kBadConfig,
               "strategy.context = \"hybrid\" is not in this version\n  fix: strategy.context = \"all_to_all\"");
  const AddedTechnique row(made_up_row(), "recompute");
  const Trained plain = train_in_threads(tiny_run(), 2, 3), made_up = train_in_threads(asking(), 2, 3);
  EXPECT_EQ(made_up.losses, plain.losses);
  EXPECT_EQ(made_up.norms, plain.norms);
  EXPECT_EQ(made_up.validation, plain.validation);
  const auto recomputes = [](const Trained& trained) {
    return std::ranges::count(trained.step.ops, program::OpKind::kRecompute, &program::Op::kind);
  };
  EXPECT_EQ(recomputes(plain), 0);
  EXPECT_GT(recomputes(made_up), 0) << "its rewrite is in the program";
}

TEST(MadeUpTechnique, IsChosen_WhereItFitsAndTheRunAsItIsDoesNot) {
  const AddedTechnique row(made_up_row(), "recompute");
  const planner::Budget budget{.device = needed(asking())};
  ASSERT_GT(needed(tiny_run()), budget.device);
  spec::RunFile run = tiny_run("[strategy]\nauto = true\n");
  EXPECT_THAT(planner::resolve(run, 1, planner::small_server(1), budget).summary,
              HasSubstr("strategy.auto: strategy.context=hybrid"));
}

// A row that claims what its rewrite does not do.
TEST(MadeUpTechnique, IsHeldToWhatItEstablishes) {
  Technique claims = made_up_row();
  claims.extend_proof = [](const StepContext&, program::Proof& proof) { proof.clipped = true; };
  const AddedTechnique row(claims, "recompute");
  EXPECT_ERROR(train_in_threads(asking(), 2, 1), Code::kBug, "does not prove after made up");
}

}  // namespace
}  // namespace herd::train
