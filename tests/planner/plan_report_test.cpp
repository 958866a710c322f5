#include "herd/planner/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace herd::planner {
namespace {

using testing::HasSubstr;
using testing::Not;

Plan plan_of(const std::string& name, int ranks, int64_t budget, std::vector<std::string> overrides = {}) {
  Plan plan;
  plan.name = name;
  plan.run = spec::parse_run_file(std::string(std::getenv("HERD_SOURCE_DIR")) + "/share/herd/models/" + name + ".toml",
                                  overrides);
  plan.ranks = ranks;
  plan.cluster = with_ranks(small_server(2), ranks);
  plan.budget.device = budget;
  plan.prediction = predict(plan.run, ranks, plan.cluster);
  if (!plan.fits()) plan.suggestions = suggest_changes(plan.run, ranks, plan.cluster, {.budget = plan.budget});
  return plan;
}

TEST(PlanText, HasTheTableTheVerdictAndTheWayOut) {
  const std::string text = plan_text(plan_of("gpt-162m", 2, int64_t{2} << 30));
  for (const char* part :
       {"gpt-162m: gpt, 12 layers of width 768, 162 M parameters, fp32", "2 ranks = dp 2", "optimizer states",
        "does not fit: ", "what would make it fit, cheapest first:", "simulating it", "sent by a rank", "on dp"})
    EXPECT_THAT(text, HasSubstr(part));
  const std::string fitting = plan_text(plan_of("gpt-162m", 2, int64_t{8} << 30));
  EXPECT_THAT(fitting, HasSubstr("\nfits: "));
  EXPECT_THAT(fitting, Not(HasSubstr("what would make it fit")));
  EXPECT_THAT(plan_text(plan_of("gpt-162m", 1, 0)), HasSubstr("no budget is stated"));
}

// Mixtral 8x7B on 64 ranks of which 8 hold the experts together: 12.9 B of 46.7 B parameters are at work for a token,
// and 6 FLOP for each of these in training. A rank sends 4 T k h e (P-1)/P bytes of rows for each of 32 layers, and 8
// for each expert and other rank.
TEST(PlanText, CountsWhatATokenUsesOfAMixture) {
  const Plan plan = plan_of("mixtral-8x7b", 64, 0, {"mesh.ep=8", "strategy.zero=1", "train.batch=64"});
  EXPECT_THAT(plan_text(plan), HasSubstr("46.7 B parameters, 12.9 B of which a token uses, "));
  const auto json = nlohmann::json::parse(plan_json(plan));
  EXPECT_NEAR(json.at("parameters").get<double>(), 46.70e9, 0.01e9);
  EXPECT_NEAR(json.at("active_parameters").get<double>(), 12.88e9, 0.01e9);
  const double tokens = 4096;  // of a rank: one sequence
  ASSERT_TRUE(plan.prediction.simulated);
  EXPECT_DOUBLE_EQ(plan.prediction.sent.at("ep"), 32 * (4 * tokens * 2 * 4096 * 2 * 7 / 8 + 8 * 8 * 7));
  // An eighth of the experts, and all else, in bf16; states of both are cut over the ranks that hold the same.
  const double experts = 32.0 * 8 * 3 * 4096 * 14336,
               others = static_cast<double>(plan.prediction.parameters) - experts;
  EXPECT_NEAR(plan.prediction.device.weights, 2 * (experts / 8 + others), 0.001e9);
  EXPECT_NEAR(plan.prediction.device.states, 10 * (experts + others) / 64, 0.001e9);
  Plan trained = plan;
  trained.tokens = 1e12;
  EXPECT_NEAR(nlohmann::json::parse(plan_json(trained)).at("training_flops").get<double>(), 6 * 12.88e9 * 1e12, 1e20);
}

// Equations know no compression, so they can't say that no other layout fits.
TEST(PlanText, SaysThatLayoutsWereNotTried_WhereNoEquationCoversTheRun) {
  const int64_t budget = int64_t{1} << 20;
  const Plan plain = plan_of("gpt-162m", 2, budget),
             compressed = plan_of("gpt-162m", 2, budget, {"strategy.compression=bf16"});
  EXPECT_THAT(plan_text(plain), HasSubstr("nothing that was tried makes it fit: ask for more --ranks"));
  for (const std::string& text : {plan_text(compressed), plan_page(compressed)})
    EXPECT_THAT(text, HasSubstr(", so no other layout that has it was tried: ask for more --ranks"));
  EXPECT_THAT(plan_text(compressed), HasSubstr("no equation covers strategy.compression = \"bf16\", so"));
}

// A norm of all gradients is a barrier before every update.
TEST(PlanText, SaysWherePriorityCannotShortenTheStep) {
  const auto text = [](std::vector<std::string> more) {
    more.insert(more.end(), {"strategy.schedule=priority", "strategy.partition_bytes=4194304", "strategy.credit=4"});
    return plan_text(plan_of("gpt-162m", 2, 0, more));
  };
  const auto remark = HasSubstr("strategy.schedule = \"priority\" orders sums alone, since updates wait for the norm");
  EXPECT_THAT(text({}), remark);
  EXPECT_THAT(text({"optimizer.clip=0"}), remark);
  EXPECT_THAT(text({"optimizer.clip=0", "health.check_finite=false"}), Not(remark));
}

TEST(PlanText, SaysHowTopKLearnsMoreWithAdamW) {
  const auto text = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"strategy.compression=topk", "train.steps=400"});
    return plan_text(plan_of("gpt-162m", 2, 0, more));
  };
  const auto remark = HasSubstr("strategy.compression_warmup=80 optimizer.betas=[0.9,0.99]");
  EXPECT_THAT(text({}), remark);
  EXPECT_THAT(text({"optimizer.kind=sgd"}), Not(remark));
  EXPECT_THAT(text({"strategy.compression_warmup=80"}), Not(remark));
  EXPECT_THAT(text({"strategy.compression=bf16"}), Not(remark));
  EXPECT_THAT(text({"train.steps=3"}), HasSubstr("strategy.compression_warmup=1 "));  // 0 would say it again
}

TEST(PlanText, SaysHowLongTheWholeTrainingTakes) {
  Plan plan = plan_of("gpt-162m", 1, 0);
  plan.tokens = 1e9;
  EXPECT_THAT(plan_text(plan), HasSubstr("6PT = 9.75e+17 FLOP"));
  const auto json = nlohmann::json::parse(plan_json(plan));
  EXPECT_DOUBLE_EQ(json["training_days"].get<double>() * 86400 * plan.prediction.tokens_per_s(), 1e9);
}

TEST(PlanText, SaysHowManyDevicesATrainingNeeds) {
  Plan plan = plan_of("gpt-162m", 2, 0);
  plan.tokens = 1e9;
  plan.days = 2;
  EXPECT_THAT(plan_text(plan), HasSubstr("as this run is predicted to keep up"));
  plan.flops = 1e12;
  EXPECT_THAT(plan_text(plan), HasSubstr("6 devices, 1 TFLOP/s each as stated"));  // 5.64
}

TEST(PlanEquations, StandInTextAndPage_AndSayWhatHerdDoesNotRun) {
  const Plan plan = plan_of("gpt-162m", 4, 0, {"mesh.tp=2"});
  const std::string text = equations_text(plan), page = plan_page(plan);
  for (const char* part : {"ZeRO over 2 ranks", "2 + 2 + 4 + 4 + 4 + 4 = 20", "not run by herd yet", "19sbh",
                           "recompute of every K layers", "data-parallel traffic", "ZeRO++"}) {
    EXPECT_THAT(text, HasSubstr(part));
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(equations_text(plan_of("gpt-162m", 1, 0)), Not(HasSubstr("ZeRO++")));  // nobody to send to
  const std::string t5 = equations_text(plan_of("t5-base", 1, 0));
  EXPECT_THAT(t5, HasSubstr("= 16"));
  EXPECT_THAT(t5, Not(HasSubstr("activations of one layer")));
}

TEST(PlanJson, HoldsTheSameFigures) {
  const Plan plan = plan_of("gpt-162m", 2, int64_t{2} << 30);
  const auto json = nlohmann::json::parse(plan_json(plan));
  EXPECT_EQ(json["plan"], 1);
  EXPECT_EQ(json["parameters"], 162447360);
  EXPECT_EQ(json["method"], "simulated");
  EXPECT_EQ(json["device_bytes"]["total"], plan.prediction.device.total());
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["remedies"].size(), plan.suggestions.size());
  EXPECT_EQ(json["bytes_sent"]["dp"], plan.prediction.sent.at("dp"));
}

TEST(PlanPage, LoadsNothing) {
  const std::string page = plan_page(plan_of("gpt-162m", 2, int64_t{2} << 30));
  EXPECT_THAT(page, HasSubstr("What would make it fit"));
  EXPECT_THAT(page, HasSubstr("<svg"));
  for (const char* outside : {"<script", "<link", "src=", "href=", "@import", "url("})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
}

}  // namespace
}  // namespace herd::planner
