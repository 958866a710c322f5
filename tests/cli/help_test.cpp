// herd without a command, as a newcomer types it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../launch/child_process.h"
#include "tests/support/herd_command.h"
#include "tests/support/temporary_folder.h"

namespace herd::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::kHerd;

TEST(HerdHelp, IsWhatPlainHerdPrints) {
  ChildProcess plain({kHerd}), help({kHerd, "--help"});
  EXPECT_EQ(plain.wait(), 0) << plain.output();
  EXPECT_EQ(help.wait(), 0) << help.output();
  EXPECT_EQ(plain.output(), help.output());
}

TEST(HerdHelp, IsACommandToo) {
  const std::vector<std::vector<std::string>> as_commands = {
      {"help"}, {"help", "plan"}, {"help", "checkpoint", "convert"}};
  const std::vector<std::vector<std::string>> as_options = {
      {"--help"}, {"plan", "--help"}, {"checkpoint", "convert", "--help"}};
  const auto run = [](std::vector<std::string> words) {
    words.insert(words.begin(), kHerd);
    ChildProcess help(words);
    EXPECT_EQ(help.wait(), 0) << help.output();
    return help.output();
  };
  for (size_t k = 0; k < as_commands.size(); ++k) EXPECT_EQ(run(as_commands[k]), run(as_options[k])) << k;
  ChildProcess wrong({kHerd, "help", "trian"});
  EXPECT_EQ(wrong.wait(), 2);
  EXPECT_THAT(wrong.output(), HasSubstr("there is no command \"trian\""));
}

TEST(HerdOutput, ThatCanNotBeWrittenIsAnError) {
  for (const char* command :
       {"--help", "--version", "plan gpt2 model.layers=2", "plan --models", "plan gpt2 model.layers=2 --json",
        "doctor --no-measure", "explain all_reduce --ranks 8", "show schedule all_reduce --ranks 3",
        "plan gpt2 model.layers=2 --equations", "bench barrier --ranks 2 --seconds 0.01 --json"}) {
    ChildProcess full({"sh", "-c", kHerd + " " + command + " > /dev/full"});
    EXPECT_EQ(full.wait(), 1) << command;
    EXPECT_THAT(full.output(), HasSubstr("the standard output can't be written")) << command;
    ChildProcess read({"sh", "-c", kHerd + " " + command + " | true"});
    EXPECT_EQ(read.wait(), 0) << command;
    EXPECT_EQ(read.output(), "") << command;
  }
}

TEST(HerdHelp, AnswersOptionsOfOtherSystemsWithTheKey) {
  ChildProcess wrong({kHerd, "train", "run.toml", "--learning-rate=3"});
  EXPECT_EQ(wrong.wait(), 2);
  EXPECT_THAT(wrong.output(), HasSubstr("--learning-rate: herd has optimizer.lr, as section.key=value"));
  ChildProcess value({kHerd, "checkpoint", "convert", "x", "--out", "y", "--dtype", "int8"});
  EXPECT_EQ(value.wait(), 2);
  EXPECT_THAT(value.output(),
              AllOf(HasSubstr("--dtype: int8 not in {fp32,bf16,fp16}"), Not(HasSubstr("section.key=value"))));
}

TEST(HerdHelp, NamesTheRangeOfRanks) {
  for (const char* ranks : {"0", "-3"}) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"train", "run.toml"}, {"plan", "gpt2"}, {"show", "layer", "gpt2"}}) {
      std::vector<std::string> words = {kHerd};
      words.insert(words.end(), command.begin(), command.end());
      words.insert(words.end(), {"--ranks", ranks});
      ChildProcess wrong(words);
      EXPECT_EQ(wrong.wait(), 2);
      EXPECT_THAT(wrong.output(), HasSubstr("not in range 1 to 1000000")) << command[0];
    }
  }
}

TEST(HerdHelp, RefusesNegativeSecondsAndTolerances) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "--grace", "-5", "--", "true"},
        {"train", "run.toml", "--grace", "-5"},
        {"parity", "run.toml", "--a", "", "--b", "", "--tolerance", "-1"},
        {"parity", "run.toml", "--a", "", "--b", "", "--weight-tolerance", "-1"}}) {
    std::vector<std::string> command = {kHerd};
    command.insert(command.end(), words.begin(), words.end());
    ChildProcess wrong(command);
    EXPECT_EQ(wrong.wait(), 2) << words[0];
    EXPECT_THAT(wrong.output(), HasSubstr("not in range")) << words[0];
  }
}

TEST(HerdHelp, ListsAFirstSession) {
  ChildProcess help({kHerd, "--help"}), of_one({kHerd, "explain", "--help"});
  EXPECT_EQ(help.wait(), 0);
  EXPECT_EQ(of_one.wait(), 0);
  EXPECT_THAT(help.output(), HasSubstr("A first session"));
  EXPECT_THAT(help.output(), HasSubstr("  herd train run.toml"));
  EXPECT_THAT(of_one.output(), Not(HasSubstr("A first session")));
}

TEST(HerdHelp, OfTrainTeachesTheKeysOfTheRunFile) {
  ChildProcess help({kHerd, "train", "--help"});
  EXPECT_EQ(help.wait(), 0);
  EXPECT_THAT(help.output(), HasSubstr("[optimizer]\n"));
  EXPECT_THAT(help.output(), HasSubstr("  micro_batch = 2 "));
}

TEST(HerdHelp, SaysItsVersion) {
  ChildProcess asked({kHerd, "--version"});
  EXPECT_EQ(asked.wait(), 0);
  EXPECT_THAT(asked.output(), testing::MatchesRegex("herd [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(HerdHelp, NamesACommandThatThereIsNot) {
  ChildProcess wrong({kHerd, "trian", "run.toml"});
  EXPECT_EQ(wrong.wait(), 2);
  EXPECT_THAT(wrong.output(), HasSubstr("there is no command \"trian\""));
  EXPECT_THAT(wrong.output(), HasSubstr("fix: one of bench, checkpoint"));
}

TEST(HerdBench, SaysWhatItMeasuresWhileItTunes) {
  const TemporaryFolder folder;
  // The whole takes longer than a test may: it ends with the first such line.
  ChildProcess tune({"sh", "-c",
                     "timeout 60 " + kHerd + " bench broadcast --ranks 2 --bytes 4KiB --seconds 1 --tune " +
                         (folder / "tuning").string() + " 2>&1 >/dev/null | grep -m 1 ' turn '"});
  EXPECT_EQ(tune.wait(), 0);
  EXPECT_THAT(tune.output(),
              testing::ContainsRegex("herd bench --tune: broadcast 4 KiB: [a-z_]+, turn [12] of 2 \\([0-9]+ s\\)\n"));
}

TEST(HerdBench, TunesForWhatTheFileHoldsAlone) {
  ChildProcess wrong({kHerd, "bench", "all_reduce", "--tune", "file", "--dtype", "bf16"});
  EXPECT_EQ(wrong.wait(), 2);
  EXPECT_THAT(wrong.output(), HasSubstr("--dtype excludes --tune"));
}

}  // namespace
}  // namespace herd::launch
