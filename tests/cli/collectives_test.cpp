// herd explain and herd show schedule, as functions.
#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "herd/base/error.h"
#include "herd/cli/bench.h"
#include "herd/cli/explain.h"
#include "herd/cli/measure.h"
#include "herd/cli/show_schedule.h"
#include "herd/cli/tune.h"
#include "herd/collectives/registry.h"
#include "herd/launch/cores.h"
#include "herd/schedule/schedule_text.h"
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

// As a job chooses, which times its host, too (measure/memory_probe.h); rates are rounded to one or 3.15 times a power
// of ten, and no default is.
TEST(Explain, RestsOnThisHostsMemory) {
  if (launch::host_cores() < 2) GTEST_SKIP() << "ranks that share one core time nothing";
  const Host given, timed = topology_of({.op = "all_reduce", .ranks = 3}).hosts.at(0);
  EXPECT_EQ(timed.ranks, 3);
  EXPECT_EQ(timed.cores, launch::host_cores());
  EXPECT_NE(timed.core_bytes_per_us, given.core_bytes_per_us);
  EXPECT_NE(timed.memory_bytes_per_us, given.memory_bytes_per_us);
  EXPECT_NE(timed.cached_core_bytes_per_us, given.cached_core_bytes_per_us);
  EXPECT_NE(timed.cached_bytes_per_us, given.cached_bytes_per_us);
  EXPECT_EQ(topology_of({.op = "all_reduce", .ranks = 1}).hosts.at(0).core_bytes_per_us, given.core_bytes_per_us);
}

TEST(Explain, CountsAllWorkersTogetherOnRequest) {
  const std::string text =
      explain({.collective = {.op = "all_reduce", .ranks = 4, .bytes = "1MiB"}, .aggregate_traffic = true});
  for (const char* words : {"parameter server       8 MiB  2 N M", "naive                 12 MiB  N (N-1) M",
                            "ring                   6 MiB  2 (N-1) M", "butterfly              8 MiB  N M log N"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
  EXPECT_THAT(text, testing::ContainsRegex("parameter server .* none\n")) << "herd has none";
}

TEST(Explain, SaysWhichAlgorithmsHaveSegments) {
  CollectiveOptions options{.op = "all_reduce", .ranks = 4, .bytes = "1MiB", .topology_file = "torus:2x2"};
  const auto us = [&](std::string_view algorithm) {
    const auto json = nlohmann::json::parse(explain({.collective = options, .json = true}));
    for (const auto& one : json["candidates"]) {
      if (one["algorithm"] == algorithm) return std::pair(one["us"].get<double>(), one.contains("segment_bytes"));
    }
    throw std::runtime_error("no such candidate");
  };
  const auto ring = us("ring"), tree = us("double_tree"), mesh = us("mesh_2d");
  EXPECT_THAT(explain({.collective = options}), testing::Not(HasSubstr("segments of")));
  options.segment = "16KiB";
  EXPECT_THAT(
      explain({.collective = options}),
      HasSubstr("\nsegments of 16 KiB: binomial_tree, double_tree, chain, mesh_2d; the others have none, and are "
                "as without --segment\n"));
  EXPECT_EQ(us("ring"), ring);
  for (const auto& [before, after] : {std::pair(tree, us("double_tree")), std::pair(mesh, us("mesh_2d"))}) {
    EXPECT_NE(after.first, before.first);
    EXPECT_FALSE(before.second);
    EXPECT_TRUE(after.second);
  }
}

TEST(Explain, RefusesSegmentsThatNoAlgorithmHas) {
  const auto message = [](const ExplainOptions& options) {
    try {
      explain(options);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  EXPECT_THAT(message({.collective = {.op = "all_gather", .segment = "64KiB"}}),
              HasSubstr("no all_gather has\n  fix: leave it out; all_reduce and broadcast have some"));
}

TEST(Explain, PrintsOneJsonObject) {
  const auto json = nlohmann::json::parse(
      explain({.collective = {.op = "broadcast", .ranks = 3, .bytes = "1KiB", .ordinary_memory = true}, .json = true}));
  EXPECT_EQ(json["bytes"], 1024);
  EXPECT_EQ(json["candidates"].size(), algorithms(Collective::kBroadcast).size());
  for (const auto& one : json["candidates"]) {
    const std::string why = one.value("why_not", "");
    if (one["algorithm"] == "direct_pull") {
      EXPECT_EQ(why, "needs buffers in symmetric memory");
    }
    if (one["algorithm"] == "chain") {
      EXPECT_EQ(why, "inside a host its memory serves better");
    }
    if (one["algorithm"] == "staged") {
      EXPECT_GT(one["us"], 0);
    }
  }
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
  EXPECT_THAT(refusal({.op = "reduce", .bytes = "3"}), HasSubstr("3 % 4 = 3\n  fix: --bytes 4"));
  EXPECT_THAT(refusal({.op = "reduce", .root = 2}), HasSubstr("root = 2, num_ranks = 2\n  fix: root = 0"));
  EXPECT_THAT(refusal({.op = "reduce", .ranks = 0}), HasSubstr("--ranks >= 1, but it is 0\n  fix: --ranks 2"));
  EXPECT_THAT(refusal({.op = "reduce", .topology_file = "/no/such"}), HasSubstr("no regular file that can be read"));
  TemporaryFolder folder;
  const std::string other = folder / "a.toml";
  std::ofstream(other) << "[model]\n";
  EXPECT_THAT(refusal({.op = "reduce", .topology_file = other}),
              HasSubstr("--topology " + other + ": topology, line 1"));
}

TEST(Explain, LetsATuningFileOverrideTheModel) {
  TemporaryFolder folder;
  const std::string file = folder / "a.tuning";
  std::ofstream(file) << "herd-tuning 1\nall_reduce 2 symmetric 1048576 ring 12.5\n";
  const CollectiveOptions mebibyte{.op = "all_reduce", .ranks = 2, .bytes = "1MiB"};
  EXPECT_THAT(explain({.collective = mebibyte}), HasSubstr("choice: direct_push"));
  EXPECT_THAT(explain({.collective = mebibyte, .tuning_file = file}),
              HasSubstr("choice: ring: 12.5 us measured at 1 MiB"));
}

// What `herd bench` reports of a run that it is told to make as `herd explain --measure` tells it.
nlohmann::json benched(const CollectiveOptions& options, std::string_view algorithm) {
  const CollectiveRequest request = request_of(options, topology_of(options));
  check_measurable(request);
  std::vector<std::string> arguments = bench_arguments(request, algorithm, 0.001);
  std::reverse(arguments.begin(), arguments.end());  // as CLI::App takes a vector
  CLI::App app;
  add_bench_command(app);
  testing::internal::CaptureStdout();
  app.parse(arguments);
  std::fflush(stdout);
  return nlohmann::json::parse(testing::internal::GetCapturedStdout());
}

TEST(Explain, MeasuresWhatWasAskedFor) {
  const auto scatter = benched({.op = "scatter",
                                .ranks = 3,
                                .bytes = "6KiB",
                                .dtype = "bf16",
                                .root = 1,
                                .out_of_place = true,
                                .ordinary_memory = true},
                               "binomial");
  EXPECT_EQ(scatter["op"], "scatter");
  EXPECT_EQ(scatter["ranks"], 3);
  EXPECT_EQ(scatter["bytes"], 6144);
  EXPECT_EQ(scatter["dtype"], "bf16");
  EXPECT_EQ(scatter["root"], 1);
  EXPECT_EQ(scatter["in_place"], false);
  EXPECT_EQ(scatter["memory"], "ordinary");
  EXPECT_EQ(scatter["algorithm"], "binomial");
  const auto gathered = benched({.op = "all_gather", .bytes = "4KiB"}, "chain");
  EXPECT_EQ(gathered["in_place"], true);
  EXPECT_EQ(gathered["memory"], "symmetric");
  EXPECT_EQ(benched({.op = "all_gather", .bytes = "4KiB", .out_of_place = true}, "chain")["in_place"], false);
  const CollectiveOptions cut{.op = "broadcast", .bytes = "4KiB", .segment = "256"};
  EXPECT_THAT(bench_arguments(request_of(cut, topology_of(cut)), "chain", 1),
              testing::IsSupersetOf({"--segment", "256"}));
  EXPECT_THAT(bench_arguments(request_of(cut, topology_of(cut)), "binomial", 1),
              testing::Not(testing::Contains("--segment")));
  EXPECT_EQ(benched(cut, "chain")["op"], "broadcast");
}

TEST(Explain, RefusesToMeasureWhatNoCommunicatorDoes) {
  const auto refusal = [](const CollectiveOptions& options) -> std::string {
    try {
      explain({.collective = options, .measure = true});
    } catch (const Error& error) {
      return error.what();
    }
    return "took it";
  };
  EXPECT_THAT(refusal({.op = "reduce", .out_of_place = true}), HasSubstr("communicators have reduce in place alone"));
  EXPECT_THAT(refusal({.op = "scatter", .ranks = 3, .bytes = "4KiB"}),
              HasSubstr("1024 elements % 3 ranks = 1\n  fix: --bytes 4104"));
}

TEST(Tune, KeepsWhatItDoesNotMeasureAgain) {
  const TunedSize one{Collective::kAllReduce, {1, 2}, true, 1024, "staged", 3},
      other{Collective::kBroadcast, {1, 2}, true, 1024, "staged", 4},
      elsewhere{Collective::kAllReduce, {2, 1}, true, 1024, "ring", 5};
  TunedSize again = one;
  again.algorithm = "direct_pull";
  const Tuning tuning = with(with(with(with({}, one), other), elsewhere), again);
  EXPECT_EQ(tuning, (Tuning{{again, other, elsewhere}}));
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
