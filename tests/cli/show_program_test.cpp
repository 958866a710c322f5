// herd show program as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../launch/child_process.h"
#include "herd/program/program_text.h"
#include "tests/support/herd_command.h"
#include "tests/support/temporary_folder.h"

namespace herd::launch {
namespace {

using testing::HasSubstr;
using testing_support::kHerd;

const std::string kRun =
    std::string(std::getenv("HERD_SOURCE_DIR") ? std::getenv("HERD_SOURCE_DIR") : ".") + "/examples/gpt_kjv.toml";

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(HerdShowProgram, PrintsAStepThatCanBeReadAgain_AndWhatItIsPredictedToTake) {
  ChildProcess show({"sh", "-c",
                     "exec \"$0\" show program \"$1\" strategy.zero=3 --ranks 2 --rank 1 --text 2>/dev/null", kHerd,
                     kRun});
  EXPECT_EQ(show.wait(60), 0) << show.output();
  const program::Program step = program::parse_program(show.output());
  EXPECT_EQ(step.rank, 1);
  EXPECT_EQ(step.mesh.size(step.mesh.find("dp")), 2);
  ChildProcess words({"sh", "-c", "exec \"$0\" show program \"$1\" --ranks 2 2>&1 >/dev/null", kHerd, kRun});
  EXPECT_EQ(words.wait(60), 0) << words.output();
  EXPECT_THAT(words.output(), HasSubstr("proved on all ranks"));
  EXPECT_THAT(words.output(), testing::ContainsRegex("predicted: .* a step, device peak .* at "));
}

TEST(HerdShowProgram, WritesPagePictureAndTrace) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("herd-show-program-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  ChildProcess show({kHerd, "show", "program", kRun, "--html", folder / "step.html", "--svg", folder / "step.svg",
                     "--trace", folder / "step.json"});
  EXPECT_EQ(show.wait(60), 0) << show.output();
  EXPECT_THAT(contents(folder / "step.html"), HasSubstr("</html>"));
  EXPECT_THAT(contents(folder / "step.svg"), testing::AllOf(testing::StartsWith("<svg"), HasSubstr("backward")));
  EXPECT_GT(nlohmann::json::parse(contents(folder / "step.json"))["traceEvents"].size(), 20u);
  std::filesystem::remove_all(folder);
}

TEST(HerdShowProgram, WritesCellsAsPage_AndRefusesATraceOfThem) {
  const TemporaryFolder folder;
  ChildProcess show({kHerd, "show", "program", kRun, "--cells", "--html", folder / "cells.html"});
  EXPECT_EQ(show.wait(60), 0) << show.output();
  EXPECT_THAT(read_text(folder / "cells.html"),
              testing::AllOf(HasSubstr("2 ranks = dp 2"), HasSubstr("rank 1, weights")));
  ChildProcess trace({kHerd, "show", "program", kRun, "--cells", "--trace", folder / "cells.json"});
  EXPECT_EQ(trace.wait(60), 2);
  EXPECT_THAT(trace.output(), HasSubstr("fix: one of both"));
}

TEST(HerdShowProgram, ShowsThePassesThatContinueTexts) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("herd-show-pass-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const std::string pass : {"prompt", "token"}) {
    ChildProcess show({"sh", "-c",
                       "exec \"$0\" show program \"$1\" mesh.tp=2 --rank 1 --pass \"$2\" --text 2>/dev/null", kHerd,
                       kRun, pass});
    EXPECT_EQ(show.wait(60), 0) << show.output();
    const program::Program program = program::parse_program(show.output());
    EXPECT_EQ(program.rank, 1);
    EXPECT_EQ(program.ops.at(program.ops.size() - 2).kind, program::OpKind::kLogits);
    ChildProcess draw({kHerd, "show", "program", kRun, "--pass", pass, "--html", folder / "pass.html"});
    EXPECT_EQ(draw.wait(60), 0) << draw.output();
    EXPECT_THAT(contents(folder / "pass.html"), testing::AllOf(HasSubstr("logits"), HasSubstr("cache3")));
  }
  std::filesystem::remove_all(folder);
  ChildProcess wrong({kHerd, "show", "program", kRun, "--pass", "both"});
  EXPECT_EQ(wrong.wait(60), 2);
  EXPECT_THAT(wrong.output(), HasSubstr("--pass prompt or --pass token"));
}

TEST(HerdShowProgram, RefusesARankThatIsNotThere) {
  ChildProcess show({kHerd, "show", "program", kRun, "--ranks", "2", "--rank", "2"});
  EXPECT_EQ(show.wait(60), 2);
  EXPECT_THAT(show.output(), testing::AllOf(HasSubstr("--rank must be in [0, 2), got 2"), HasSubstr("fix: ")));
}

}  // namespace
}  // namespace herd::launch
