// The figures that are published of what training costs, as herd plan --json gives them.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../launch/child_process.h"
#include "tests/support/herd_command.h"

namespace herd::launch {
namespace {

using Json = nlohmann::json;

constexpr double kGB = 1e9;

Json plan(const std::string& arguments) {
  std::vector<std::string> command = {testing_support::kHerd, "plan"};
  std::istringstream words(arguments);
  for (std::string word; words >> word;) command.push_back(word);
  command.push_back("--json");
  ChildProcess child(testing_support::without_status_lines(std::move(command)));
  const int status = child.wait();
  EXPECT_EQ(status, 0) << arguments << "\n" << child.output();
  return status == 0 ? Json::parse(child.output()) : Json();
}

Json form(const Json& plan, const std::string& name) {
  for (const Json& row : plan["equations"]["model_states"])
    if (row["form"] == name) return row;
  ADD_FAILURE() << "no form " << name;
  return {};
}

TEST(PlanGoldens, ModelStatesInFp32_OfPublishedModels) {
  // Lectures round the parameters first: BERT-Large to 0.32 B of 0.335 B, GPT-2 to 1.5 B of 1.56 B.
  const std::tuple<const char*, double, double> published[] = {
      {"bert-large", 5.12, 0.06}, {"gpt2-xl", 24, 0.04}, {"turing-nlg", 275, 0.004}, {"gpt3-175b", 2800, 0.003}};
  for (const auto& [name, gigabytes, rounding] : published) {
    const Json p = plan(std::string(name) + " strategy.precision=fp32");
    for (const char* of : {"this run", "fp32"}) {
      const Json row = form(p, of);
      EXPECT_EQ(row["bytes_per_parameter"], 16) << name;
      EXPECT_EQ(row["parts"], (Json{{"weight", 4}, {"gradient", 4}, {"momentum", 4}, {"variance", 4}}));
      EXPECT_EQ(row["model_bytes"], 16 * p["parameters"].get<double>());
      EXPECT_NEAR(row["model_bytes"].get<double>() / kGB, gigabytes, rounding * gigabytes) << name;
    }
  }
  // What the step's program holds of them.
  const Json p = plan("gpt2 strategy.precision=fp32 --ranks 1"), held = p["device_bytes"];
  const double states = held["weights"].get<double>() + held["gradients"].get<double>() + held["states"].get<double>();
  EXPECT_NEAR(states, 16 * p["parameters"].get<double>(), 1e-4 * states);
}

TEST(PlanGoldens, ModelStatesIn16Bit) {
  const Json p = plan("gpt3-175b strategy.precision=fp16");
  const Json mixed = form(p, "bf16 gradient and momentum");
  EXPECT_EQ(mixed["parts"], (Json{{"weight", 4}, {"gradient", 2}, {"momentum", 2}, {"variance", 4}}));
  EXPECT_EQ(mixed["bytes_per_parameter"].get<double>() * 1e9 / kGB, 12);
  for (const char* name : {"this run", "fp16, fp32 master and moments"}) {
    const Json row = form(p, name);
    EXPECT_EQ(row["bytes_per_parameter"], 16);
    const double psi = p["parameters"].get<double>();
    for (const auto& [part, golden] : std::map<std::string, double>{
             {"weight", 350}, {"gradient", 350}, {"master", 700}, {"momentum", 700}, {"variance", 700}})
      EXPECT_NEAR(row["parts"][part].get<double>() * psi / kGB, golden, 0.003 * golden) << part;
  }
  const Json copied = form(p, "the same, fp32 gradient copy");
  EXPECT_EQ(copied["bytes_per_parameter"].get<double>() * 1e9 / kGB, 20);
  EXPECT_EQ(copied["keys"], "");  // no run file asks for it
}

// A form that names its keys is what a run with these keys keeps.
TEST(PlanGoldens, FormsOfModelStatesAreWhatTheirKeysTrain) {
  int trained = 0;
  const Json forms = plan("gpt2 --ranks 1")["equations"]["model_states"];
  for (const Json& row : forms) {
    const std::string keys = row["keys"];
    if (keys.empty()) continue;
    EXPECT_EQ(form(plan("gpt2 --ranks 1 " + keys), "this run")["bytes_per_parameter"], row["bytes_per_parameter"])
        << keys;
    ++trained;
  }
  EXPECT_GE(trained, 2);
}

TEST(PlanGoldens, ParametersOfADecoder) {
  const Json p = plan("gpt3-175b");
  EXPECT_NEAR(p["parameters"].get<double>(), 175e9, 0.01 * 175e9);
  const double d = 12288, L = 96, V = 50257;
  EXPECT_EQ(p["equations"]["decoder_parameters"], V * d + L * (12 * d * d + 5 * d));
  EXPECT_NEAR(p["equations"]["decoder_parameters"].get<double>(), 175e9, 0.01 * 175e9);
}

Json mode(const Json& layer, bool sequence_parallel, const std::string& recompute) {
  for (const Json& row : layer["modes"])
    if (row["sequence_parallel"] == sequence_parallel && row["recompute"] == recompute) return row;
  ADD_FAILURE() << "no mode " << recompute;
  return {};
}

TEST(PlanGoldens, ActivationsOfALayer_ByTerm) {
  const Json layer = plan("gpt3-175b train.micro_batch=4")["equations"]["layer_activations"];
  const double s = 2048, b = 4, h = 12288, a = 96, sbh = s * b * h, scores = 5 * a * s * s * b;
  EXPECT_EQ(layer["attention"], 11 * sbh + scores);
  EXPECT_EQ(layer["attention_core"], 8 * sbh + scores);
  EXPECT_EQ(layer["feed_forward"], 19 * sbh);
  EXPECT_EQ(layer["norms"], 4 * sbh);
  const double whole = sbh * (34 + 5 * a * s / h);
  EXPECT_DOUBLE_EQ(mode(layer, false, "none")["bytes"], whole);
  EXPECT_EQ(mode(layer, false, "none")["not_built"], "");
}

TEST(PlanGoldens, ActivationsOfALayer_ByTechnique) {
  const Json layer = plan("megatron-175b model.layers=4 mesh.tp=8 --ranks 8")["equations"]["layer_activations"];
  const double s = 2048, b = 1, h = 12288, a = 96, t = 8, sbh = s * b * h;
  EXPECT_DOUBLE_EQ(mode(layer, false, "none")["bytes"], sbh * (10 + 24 / t + 5 * a * s / (h * t)));
  EXPECT_DOUBLE_EQ(mode(layer, true, "none")["bytes"], sbh * (34 / t + 5 * a * s / (h * t)));
  EXPECT_DOUBLE_EQ(mode(layer, true, "selective")["bytes"], 34 * sbh / t);
  EXPECT_DOUBLE_EQ(mode(layer, true, "full")["bytes"], 2 * sbh);
  for (const Json& row : layer["modes"]) EXPECT_EQ(row["not_built"], "");
}

TEST(PlanGoldens, DevicesThatATrainingNeeds) {
  const Json p = plan("gpt3-175b --tokens 300e9 --days 30 --flops 160e12");
  const double psi = p["parameters"];
  EXPECT_DOUBLE_EQ(p["training_flops"], 6 * psi * 300e9);
  EXPECT_DOUBLE_EQ(p["devices_needed"], 6 * psi * 300e9 / (160e12 * 30 * 86400));
  EXPECT_NEAR(p["devices_needed"].get<double>(), 760, 5);
  // At its predicted pace a run needs as many days on its own ranks as it says.
  const Json own = plan("gpt2 --ranks 4 --tokens 1e9 --days 10");
  EXPECT_NEAR(own["devices_needed"].get<double>() * 10 / 4, own["training_days"].get<double>(), 1e-9);
}

TEST(PlanGoldens, AnswersForMoreStagesThanLayers_AndFrozenParameters) {
  const Json p = plan("gpt2 mesh.pp=14 --ranks 14")["equations"];
  EXPECT_EQ(p["layer_activations"]["checkpoints"].back()["every"], 1);
  EXPECT_EQ(plan("gpt2 model.frozen=wpe.weight")["equations"]["model_states"][0]["form"], "this run, nothing frozen");
}

TEST(PlanGoldens, ZeroStatesOfARank) {
  const Json row = form(plan("megatron-7.5b --ranks 64"), "fp16, fp32 master and moments");
  const double golden[] = {120, 31.4, 16.6, 1.9};
  for (size_t stage = 0; stage < 4; ++stage)
    EXPECT_NEAR(row["rank_bytes_by_zero"][stage].get<double>() / kGB, golden[stage], 0.01 * golden[stage] + 0.05);
}

TEST(PlanGoldens, TrafficOfARank_IsWhatItsProgramSends) {
  for (const int stage : {0, 1, 2, 3}) {
    const Json p = plan(
        "gpt2 --ranks 4 strategy.precision=fp32 strategy.keep_whole=0 train.batch=8 "
        "train.micro_batch=2 strategy.zero=" +
        std::to_string(stage));
    const double psi = p["parameters"], N = 4;
    const double elements = p["equations"]["elements_sent_by_zero"][stage];
    EXPECT_DOUBLE_EQ(elements, (stage == 3 ? 3 : 2) * psi * (N - 1) / N);
    const double sent = p["bytes_sent"]["dp"].get<double>() / 4;
    // Positions and the loss block's norm are gathered once: the one is differentiated without weights, the other in
    // one pass. The tied embedding is, for each of the two blocks that read it.
    const double once = stage == 3 ? (1024 * 768 + 2 * 768) * (N - 1) / N : 0;
    EXPECT_NEAR(sent, elements - once, 1e-4 * elements) << stage;
  }
}

TEST(PlanGoldens, ZeroPlusPlusSendsAQuarterAcrossHosts) {
  const Json p = plan("megatron-7.5b --ranks 64"), across = p["equations"]["cross_host_bytes"];
  const double M = 2 * p["parameters"].get<double>();
  EXPECT_EQ(across["zero3"], 3 * M);
  EXPECT_EQ(across["zero_plus_plus"], 0.75 * M);
}

TEST(PlanGoldens, RecomputeHoldsLeastAtTheRootOfTheDepth_AndTakesAThirdMore) {
  const Json layer = plan("gpt3-175b")["equations"]["layer_activations"];
  const Json rows = layer["checkpoints"];
  ASSERT_EQ(rows.size(), 3u);  // every layer, the root, all
  EXPECT_EQ(rows[1]["every"], std::lround(std::sqrt(96)));
  const double s = 2048, h = 12288, a = 96, sbh = s * h;
  for (const Json& row : rows) {
    const int64_t every = row["every"];
    EXPECT_EQ(row["kept"], (96 + every - 1) / every);
    EXPECT_EQ(row["segment"], every);
    EXPECT_DOUBLE_EQ(row["bytes"],
                     row["kept"].get<double>() * 2 * sbh + static_cast<double>(every) * sbh * (34 + 5 * a * s / h));
  }
  const auto layers = [&](size_t row) { return rows[row]["kept"].get<int>() + rows[row]["segment"].get<int>(); };
  EXPECT_LT(layers(1), layers(0));
  EXPECT_LT(layers(1), layers(2));
  EXPECT_NEAR(layer["full_recompute_flops"].get<double>(), 4.0 / 3, 0.01);
  const std::string run = "gpt2 --ranks 1 --cluster a100-80gb strategy.recompute=";
  const Json none = plan(run + "none"), full = plan(run + "full"), root = plan(run + "sqrt");
  const double more = full["step_us"].get<double>() / none["step_us"].get<double>();
  EXPECT_GT(more, 1.2);
  EXPECT_LT(more, 1.4);
  const auto held = [](const Json& p) { return p["device_bytes"]["activations"].get<double>(); };
  EXPECT_LT(held(root), held(none));
}

}  // namespace
}  // namespace herd::launch
