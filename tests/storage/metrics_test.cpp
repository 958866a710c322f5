#include "herd/storage/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "herd/base/log.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace herd {
namespace {

StepMetrics at_step(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 8.25 / static_cast<double>(step) + 1e-17;
  metrics.grad_norm = 1.0 / 3;
  metrics.lr = 3e-4;
  metrics.tokens = 2048;
  metrics.tokens_per_s = 5000.5;
  metrics.step_ms = 409.6;
  metrics.bytes_sent = int64_t{1} << 40;
  metrics.device_bytes_peak = 123456789;
  metrics.predicted_step_ms = 400;
  metrics.predicted_device_bytes_peak = 123000000;
  if (step % 2 == 0) metrics.val_loss = 7.5, metrics.val_figures = {{"right", 0.25}, {"a b", -1}};
  if (step % 2 == 1) metrics.compression_ratio = 3.9, metrics.compression_error = 0.01;
  if (step % 3 == 1) metrics.staleness = step, metrics.ranks = 4;
  if (step % 3 == 2) metrics.expert_load = {{3, 0}, {1, 2}}, metrics.close_choices = {0, step};
  return metrics;
}

TEST(Metrics, ReadsTheSameNumbersThatWereWritten) {
  TemporaryFolder folder;
  {
    MetricsWriter writer(folder / "metrics.jsonl", 0);
    for (int64_t step = 1; step <= 5; ++step) writer.write(at_step(step));
  }
  EXPECT_EQ(read_text(folder / "metrics.jsonl").find(R"({"format":"herd-metrics","version":1})"), 0u);
  const auto steps = read_metrics(folder / "metrics.jsonl");
  ASSERT_EQ(steps.size(), 5u);
  for (int64_t step = 1; step <= 5; ++step) {
    const auto& metrics = steps[static_cast<size_t>(step - 1)];
    EXPECT_EQ(format_metrics(metrics), format_metrics(at_step(step)));
    EXPECT_EQ(metrics.loss, at_step(step).loss) << "to the last bit";
    EXPECT_EQ(metrics.val_loss, at_step(step).val_loss);
    EXPECT_EQ(metrics.val_figures, at_step(step).val_figures);
    EXPECT_EQ(metrics.compression_ratio, at_step(step).compression_ratio);
    EXPECT_EQ(metrics.compression_error, at_step(step).compression_error);
    EXPECT_EQ(metrics.staleness, at_step(step).staleness);
    EXPECT_EQ(metrics.ranks, at_step(step).ranks);
    EXPECT_EQ(metrics.expert_load, at_step(step).expert_load);
    EXPECT_EQ(metrics.close_choices, at_step(step).close_choices);
  }
}

TEST(Metrics, AResumedRunDropsTheStepsThatItRepeats) {
  TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  {
    MetricsWriter writer(path, 0);
    for (int64_t step = 1; step <= 5; ++step) writer.write(at_step(step));
  }
  write_text(path, read_text(path) + R"({"step":6,"lo)");  // killed in the middle of a line
  {
    MetricsWriter writer(path, 3);
    writer.write(at_step(4));
  }
  const auto steps = read_metrics(path);
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps.back().step, 4);
}

TEST(Metrics, ARunThatBeginsAgainSaysWhatItReplaces) {
  TemporaryFolder folder;
  const auto path = folder / "metrics.jsonl";
  std::string said;
  set_log_output([&](const std::string& line) { said += line; });
  MetricsWriter(path, 0);
  MetricsWriter(path, 0).write(at_step(1));
  EXPECT_EQ(said, "");
  MetricsWriter(path, 0);
  set_log_output(nullptr);
  EXPECT_NE(said.find("the metrics of its 1 step so far are replaced: " + path.string()), std::string::npos) << said;
  EXPECT_TRUE(read_metrics(path).empty());
}

TEST(Metrics, ADamagedLineStopsNoResume) {
  TemporaryFolder folder;
  const std::string header = "{\"format\":\"herd-metrics\",\"version\":1}\n";
  const auto line = [](int64_t step) { return format_metrics(at_step(step)) + "\n"; };
  for (const std::string& text : {header + line(1) + "{\"step\":" + std::string(9, '\0') + "\n" + line(3) + line(4),
                                  "nonsense\n" + line(1) + line(3) + line(3) + line(2) + line(4)}) {
    const auto path = folder / "metrics.jsonl";
    write_text(path, text);
    MetricsWriter(path, 3).write(at_step(4));
    const auto steps = read_metrics(path);
    ASSERT_EQ(steps.size(), 3u);
    EXPECT_EQ(steps[1].step, 3);
    EXPECT_EQ(steps[2].step, 4);
    EXPECT_EQ(read_text(folder / "metrics.jsonl.damaged"), text);
  }
  write_text(folder / "empty", "");
  MetricsWriter(folder / "empty", 3).write(at_step(4));
  EXPECT_EQ(read_metrics(folder / "empty").size(), 1u);
}

TEST(Metrics, NumbersThatAreNotFiniteAreNull) {
  StepMetrics metrics = at_step(1);
  metrics.loss = std::nan("");
  EXPECT_NE(format_metrics(metrics).find("\"loss\":null"), std::string::npos);
  const auto back =
      parse_metrics("{\"format\":\"herd-metrics\",\"version\":1}\n" + format_metrics(metrics) + "\n", "m");
  EXPECT_TRUE(std::isnan(back.at(0).loss));
}

TEST(Metrics, RefusesEachBrokenRuleNamingTheLine) {
  const std::string header = "{\"format\":\"herd-metrics\",\"version\":1}\n", one = format_metrics(at_step(1)) + "\n";
  EXPECT_ERROR(parse_metrics("", "m.jsonl"), Code::kCorruptFile, "m.jsonl line 1", "starts with");
  EXPECT_ERROR(parse_metrics("{\"format\":\"herd-metrics\",\"version\":2}\n", "m"), Code::kCorruptFile, "line 1");
  EXPECT_ERROR(parse_metrics(one, "m"), Code::kCorruptFile, "line 1");
  EXPECT_ERROR(parse_metrics(header + "nonsense\n" + one, "m"), Code::kCorruptFile, "line 2", "not a JSON object");
  EXPECT_ERROR(parse_metrics(header + one + one, "m"), Code::kCorruptFile, "line 3", "step 1 does not follow step 1");
  EXPECT_ERROR(parse_metrics(header + "{\"step\":1}\n", "m"), Code::kCorruptFile, "line 2", "\"loss\"");
  EXPECT_ERROR(parse_metrics(header + "{\"step\":1.5}\n", "m"), Code::kCorruptFile, "line 2", "whole number \"step\"");
  EXPECT_ERROR(parse_metrics(header + "{\"step\":18446744073709551615}\n", "m"), Code::kCorruptFile, "line 2",
               "whole number \"step\", up to 2^63 - 1");
}

// A limit on the size of files cuts a line and refuses what follows, as a full disk does.
TEST(Metrics, ALineThatIsRefusedIsWrittenLater_AndIsAnErrorOnlyAtTheEnd) {
  TemporaryFolder folder;
  MetricsWriter writer(folder / "metrics.jsonl", 0);
  writer.write({.step = 1});
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight = {std::filesystem::file_size(folder / "metrics.jsonl") + 100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  writer.write({.step = 2});
  writer.write({.step = 3});
  EXPECT_ERROR(writer.finish(), Code::kStorage, "metrics.jsonl", "File too large", "fix:");
  EXPECT_EQ(read_metrics(folder / "metrics.jsonl").size(), 1u);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  writer.write({.step = 4});
  writer.finish();
  const auto steps = read_metrics(folder / "metrics.jsonl");
  ASSERT_EQ(steps.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(steps[i].step, static_cast<int64_t>(i) + 1);
}

}  // namespace
}  // namespace herd
