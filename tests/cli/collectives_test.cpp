// herd explain and herd show schedule, as functions.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "herd/base/error.h"
#include "herd/cli/explain.h"
#include "herd/cli/show_schedule.h"
#include "herd/schedule/text.h"
#include "tests/support/temporary_folder.h"

namespace herd::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Explain, ListsEveryAlgorithmAndTheChoice) {
  const std::string text = explain({.collective = {.op = "all_reduce", .ranks = 2, .bytes = "64MiB"}});
  for (const char* words :
       {"all_reduce of 64 MiB fp32 over 2 ranks", "ring", "direct_pull", "staged", "\nchoice: direct_push: "}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
}

TEST(Explain, PrintsOneJsonObject) {
  const auto json = nlohmann::json::parse(
      explain({.collective = {.op = "broadcast", .ranks = 3, .bytes = "1KiB", .ordinary_memory = true}, .json = true}));
  EXPECT_EQ(json["bytes"], 1024);
  EXPECT_EQ(json["candidates"].size(), 3u);
  EXPECT_EQ(json["candidates"][2]["why_not"], "needs buffers in symmetric memory");
}

TEST(Explain, NamesTheRuleOfABadRequest) {
  const auto refusal = [](const CollectiveOptions& options) -> std::string {
    try {
      explain({.collective = options});
    } catch (const Error& error) {
      return error.what();
    }
    return "took it";
  };
  EXPECT_THAT(refusal({.op = "all_redoce"}),
              StartsWith("kBadConfig: no collective \"all_redoce\"\n  fix: one of all_reduce"));
  EXPECT_THAT(refusal({.op = "reduce", .bytes = "5"}), HasSubstr("5 % 4 = 1\n  fix: --bytes 4"));
  EXPECT_THAT(refusal({.op = "reduce", .root = 2}), HasSubstr("root = 2, num_ranks = 2"));
  EXPECT_THAT(refusal({.op = "reduce", .ranks = 0}), HasSubstr("--ranks >= 1"));
  EXPECT_THAT(refusal({.op = "reduce", .topology_file = "/no/such"}), HasSubstr("no such file"));
  TemporaryFolder folder;
  const std::string other = folder / "a.toml";
  std::ofstream(other) << "[model]\n";
  EXPECT_THAT(refusal({.op = "reduce", .topology_file = other}),
              HasSubstr("--topology " + other + ": topology, line 1"));
}

TEST(ShowSchedule, WritesPictureTraceAndPage) {
  TemporaryFolder folder;
  ShowScheduleOptions options{.collective = {.op = "all_gather", .ranks = 3, .bytes = "64KiB"}};
  options.svg = folder / "a.svg";
  options.trace = folder / "a.json";
  options.html = folder / "a.html";
  EXPECT_EQ(run_show_schedule(options), 0);
  EXPECT_THAT(read_text(folder / "a.svg"), StartsWith("<svg"));
  EXPECT_FALSE(nlohmann::json::parse(read_text(folder / "a.json"))["traceEvents"].empty());
  EXPECT_THAT(read_text(folder / "a.html"), HasSubstr("herd-schedule 1"));
}

TEST(ShowSchedule, PrintsTextThatReadsBack) {
  ShowScheduleOptions options{
      .collective = {.op = "all_reduce", .ranks = 2, .bytes = "4KiB"}, .algorithm = "ring", .rank = 1};
  testing::internal::CaptureStdout();
  run_show_schedule(options);
  EXPECT_EQ(parse_schedule(testing::internal::GetCapturedStdout()).self, 1);
}

}  // namespace
}  // namespace herd::cli
