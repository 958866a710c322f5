// herd plan as it is typed, in the build tree and from an installed prefix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../launch/child_process.h"
#include "tests/support/herd_command.h"

namespace herd::launch {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_support::kHerd;

struct Result {
  int status;
  std::string output;
};
Result run(std::vector<std::string> command) {
  ChildProcess child(std::move(command));
  const int status = child.wait();
  return {status, child.output()};
}

TEST(HerdPlan, MakesClustersOfKnownDevices) {
  const std::vector<std::string> words = {kHerd,     "plan", "gpt2",   "train.batch=64",
                                          "--ranks", "16",   "--json", "--cluster"};
  std::vector<std::string> usual = words, slow = words;
  usual.push_back("v100-32gb");
  slow.push_back("v100-32gb:100gbit");
  const Result plan = run(testing_support::without_status_lines(usual)),
               same = run(testing_support::without_status_lines(slow));
  ASSERT_EQ(plan.status, 0) << plan.output;
  const auto json = nlohmann::json::parse(plan.output);
  EXPECT_EQ(json["device_budget"], 32'000'000'000);
  EXPECT_THAT(json["machine"].get<std::string>(), HasSubstr("hosts of 8 Tesla V100 SXM2 32 GB"));
  EXPECT_EQ(nlohmann::json::parse(same.output)["step_us"], json["step_us"]) << "its usual network";
  slow.back() = "v100-32gb:800gbit";
  const Result quick = run(testing_support::without_status_lines(slow));
  EXPECT_LT(nlohmann::json::parse(quick.output)["step_us"], json["step_us"]);
  const Result matrix = run({kHerd, "plan", "--matrix", "gpt2", "--devices", "p100,h200"});
  EXPECT_THAT(matrix.output, HasSubstr("p100  h200"));
  EXPECT_THAT(run({kHerd, "plan", "--models"}).output, HasSubstr("NVIDIA H200 data sheet"));
}

TEST(HerdPlan, KnowsModelsByName) {
  const Result gpt3 =
      run({"/bin/sh", "-c", "exec \"$0\" plan gpt3-175b --ranks 64 --cluster a100-80gb --seconds 1 --json 2>/dev/null",
           kHerd});
  ASSERT_EQ(gpt3.status, 0) << gpt3.output;
  const auto json = nlohmann::json::parse(gpt3.output);
  EXPECT_NEAR(json["parameters"].get<double>(), 175e9, 0.5e9);
  EXPECT_EQ(json["fits"], false);
  EXPECT_FALSE(json["remedies"].empty());
  const Result list = run({kHerd, "plan", "--models"});
  EXPECT_EQ(list.status, 0);
  EXPECT_THAT(list.output, HasSubstr("turing-nlg"));
  EXPECT_THAT(list.output, HasSubstr("a100-80gb"));
}

TEST(HerdPlan, SetsModelsBesideDevices) {
  const Result all = run({kHerd, "plan", "--matrix", "--devices", "24GB,80GB", "--ranks", "64"});
  EXPECT_EQ(all.status, 0) << all.output;
  EXPECT_THAT(all.output, testing::AllOf(HasSubstr("turing-nlg"), HasSubstr("24GB  80GB\n")));
  const Result one = run({kHerd, "plan", "--matrix", "gpt2", "gpt2-large", "mesh.tp=2", "--cluster", "a100-80gb"});
  EXPECT_EQ(one.status, 0) << one.output;
  EXPECT_THAT(one.output, testing::AllOf(HasSubstr("8 ranks with a device each"), HasSubstr("\ngpt2-large "),
                                         testing::Not(HasSubstr("turing-nlg"))));
  EXPECT_EQ(run({kHerd, "plan", "--matrix", "--json"}).status, 2);
  EXPECT_EQ(run({kHerd, "plan", "gpt2", "--devices", "24GB"}).status, 2);
}

// What the guide shows of herd plan is what it prints, times and remedies left out: they follow the
// algorithms and strategies, which change more often.
TEST(HerdPlan, PrintsWhatTheGuideShows) {
  int shown = 0;
  std::ifstream file(fs::path(std::getenv("HERD_SOURCE_DIR")) / "docs/guide/plan.md");
  std::string output;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("$ herd plan ")) {
      std::istringstream words(line.substr(std::string("$ herd ").size()));
      std::vector<std::string> command = {kHerd};
      for (std::string word; words >> word;) command.push_back(word);
      command.insert(command.end(), {"--seconds", "1"});  // what would make it fit is not compared
      const Result result = run(testing_support::without_status_lines(command));
      EXPECT_EQ(result.status, 0) << line;
      output = result.output;
      inside = true;
      ++shown;
    } else if (line.starts_with("what would make it fit") || line.starts_with("```")) {
      inside = false;
    } else if (inside && !line.starts_with("step ") && !line.starts_with("arithmetic ")) {
      EXPECT_THAT(output, HasSubstr(line + "\n")) << "`herd plan` prints something else now";
    }
  }
  EXPECT_EQ(shown, 2);
}

// What would make these fit takes minutes to find out.
TEST(HerdPlan, SaysWhatItLooksAt_AndStopsAtItsTimeLimit) {
  const auto start = std::chrono::steady_clock::now();
  const Result plan = run({kHerd, "plan", "gpt3-175b", "--ranks", "64", "--cluster", "a100-80gb", "--seconds", "4"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(120));
  EXPECT_EQ(plan.status, 0) << plan.output;
  EXPECT_THAT(plan.output, testing::ContainsRegex("herd plan: .* \\([0-9]+ s\\)\n"));
  EXPECT_THAT(plan.output, HasSubstr("\nthe search stopped after 4 s (--seconds) and did not look at "));
  const Result all = run({kHerd, "plan", "gpt2", "--cluster", "a100-80gb", "--budget", "2GiB", "--seconds", "600"});
  EXPECT_THAT(all.output, testing::Not(HasSubstr("the search stopped")));
}

TEST(HerdPlan, NamesTheNearestModel_AndBadKeys) {
  const Result typo = run({kHerd, "plan", "gpt3-157b"});
  EXPECT_EQ(typo.status, 2);
  EXPECT_THAT(typo.output, HasSubstr("did you mean gpt3-175b?"));
  EXPECT_THAT(run({kHerd, "plan", "gpt2", "--cluster", "a100-80"}).output, HasSubstr("did you mean a100-80gb?"));
  EXPECT_THAT(run({kHerd, "plan", "gpt2", "strategy.zer=1"}).output, HasSubstr("did you mean strategy.zero?"));
  EXPECT_THAT(run({kHerd, "plan", "gpt2", "--budget", "many"}).output, HasSubstr("is no number of bytes"));
  const Result none = run({kHerd, "plan"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.output, HasSubstr("herd plan needs a run file or a model"));
  const Result split = run({kHerd, "plan", "gpt2", "model.vocab=2", "mesh.tp=4", "--ranks", "4"});
  EXPECT_EQ(split.status, 2) << "as herd train refuses it";
  EXPECT_THAT(split.output, HasSubstr("mesh.tp must not exceed model.vocab"));
}

TEST(HerdPlan, NamesTheRuleOfAnOptionsValue) {
  for (const char* option : {"--cluster", "--budget", "--html"}) {
    const Result empty = run({kHerd, "plan", "gpt2", option, ""});
    EXPECT_EQ(empty.status, 2) << option;
    EXPECT_THAT(empty.output, HasSubstr(std::string(option) + ": is empty"));
    EXPECT_THAT(empty.output, HasSubstr("fix: a value, or leave the option out"));
  }
  for (const char* value : {"nan", "inf", "0", "-1", "many", ""}) {
    const Result tokens = run({kHerd, "plan", "gpt2", "--tokens", value});
    EXPECT_EQ(tokens.status, 2) << value;
    EXPECT_THAT(tokens.output, HasSubstr("--tokens: must be a number > 0, got \"" + std::string(value) + "\""));
    EXPECT_THAT(tokens.output, HasSubstr("fix: like 300e9"));
  }
  EXPECT_THAT(run({kHerd, "plan", "gpt2", "--seconds", "nan"}).output, HasSubstr("--seconds: must be a number >= 0"));
  EXPECT_EQ(run({kHerd, "plan", "gpt2", "--seconds", "0", "--tokens", "300e9", "--days", "0.5"}).status, 0);
}

TEST(HerdPlan, PrintsNamesAndUnknownOptionsWithoutControlCharacters) {
  char folder[] = "/tmp/herd_plan_XXXXXX";
  const fs::path file = fs::path(mkdtemp(folder)) / "cluster.toml";
  std::ofstream(file)
      << "herd_cluster = 1\nname = \"\\u001b[2Ja\\nb\"\ntopology = '''\nherd-topology 1\nhosts 1 ranks 1 "
         "cores 1\n'''\n";
  const Result plan = run({kHerd, "plan", "gpt2", "--cluster", file.string()});
  EXPECT_THAT(plan.output, HasSubstr("machine: \\x1b[2Ja\\x0ab\n")) << plan.output;
  const Result option = run({kHerd, "plan", "--\x1b[2J\r"});
  EXPECT_EQ(option.status, 2);
  for (const Result& result : {plan, option, run({kHerd, "--no\x1b[2J"}), run({kHerd, "plan", "gpt2\x1b[2J"})})
    EXPECT_EQ(result.output.find_first_of("\x1b\r"), std::string::npos) << result.output;
  fs::remove_all(fs::path(folder));
}

TEST(HerdPlan, FindsItsModels_WhereItIsInstalled) {
  char name[] = "/tmp/herd_plan_XXXXXX";
  const fs::path prefix = mkdtemp(name);
  fs::create_directories(prefix / "bin");
  fs::create_directories(prefix / "share");
  fs::copy_file(kHerd, prefix / "bin/herd");
  fs::copy(fs::path(std::getenv("HERD_SOURCE_DIR")) / "share/herd", prefix / "share/herd", fs::copy_options::recursive);
  const Result found = run({(prefix / "bin/herd").string(), "plan", "gpt2", "--html", (prefix / "p.html").string()});
  EXPECT_EQ(found.status, 0) << found.output;
  EXPECT_THAT(found.output, HasSubstr("124 M parameters"));
  EXPECT_GT(fs::file_size(prefix / "p.html"), 10000u);
  fs::remove_all(prefix / "share");
  EXPECT_THAT(run({(prefix / "bin/herd").string(), "plan", "gpt2"}).output,
              HasSubstr("herd's own files are neither in"));
  fs::remove_all(prefix);
}

}  // namespace
}  // namespace herd::launch
