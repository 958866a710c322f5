#include "herd/train/run_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <regex>

#include "herd/comm/inproc_world.h"
#include "herd/train/measured_timeline.h"

namespace herd::train {
namespace {

RunReport some_report() {
  RunReport report;
  report.title = "gpt_kjv <one & only>";
  for (int64_t step = 1; step <= 400; ++step) {
    StepMetrics metrics;
    const double x = static_cast<double>(step);
    metrics.step = step;
    metrics.loss = 4.2 + 4.1 * std::exp(-x / 60) + 0.08 * std::sin(x * 1.7);
    metrics.grad_norm = 0.6 + 3 * std::exp(-x / 30);
    metrics.lr = 3e-3 * (step < 40 ? x / 40 : 0.5 * (1 + std::cos((x - 40) / 360 * 3.1416)));
    metrics.tokens = 2048;
    metrics.step_ms = 500 + 20 * std::sin(x * 0.9);
    metrics.comm_wait_ms = 12 + 4 * std::cos(x);
    metrics.tokens_per_s = 2048e3 / metrics.step_ms;
    metrics.device_bytes_peak = int64_t{120} << 20;
    metrics.predicted_step_ms = 480;
    metrics.predicted_device_bytes_peak = int64_t{118} << 20;
    if (step % 50 == 0) metrics.val_loss = metrics.loss + 0.12;
    report.metrics.push_back(metrics);
  }
  report.facts = {{"ranks", "2"}, {"all-reduce", "direct_pull"}};
  const auto holds = [](int op, const char* name, double begin, double end, int64_t activations) {
    return program::OpMemory{op, name, begin, end, {12 << 20, 12 << 20, 24 << 20, activations << 20, 1 << 20}};
  };
  report.predicted_step_ms = 480;
  report.predicted_memory = {holds(0, "forward block0 mb0", 0, 200e3, 20),
                             holds(1, "loss block1 mb0", 200e3, 300e3, 70),
                             holds(2, "backward block0 mb0", 300e3, 480e3, 40)};
  report.measured_memory = report.predicted_memory;
  report.measured_memory[1].bytes[3] += 1 << 20;
  report.device_budget = int64_t{1} << 30;
  sim::Timeline timeline;
  timeline.rows = {{"rank 0", "compute"}, {"rank 0", "reduce"}};
  for (int block = 0; block < 6; ++block) {
    timeline.spans.push_back(
        {0, "forward block" + std::to_string(block), "forward", block * 30e3, block * 30e3 + 30e3});
    timeline.spans.push_back(
        {0, "backward block" + std::to_string(5 - block), "backward", 180e3 + block * 45e3, 225e3 + block * 45e3});
    timeline.spans.push_back(
        {1, "reduce g" + std::to_string(5 - block), "reduce", 225e3 + block * 45e3, 235e3 + block * 45e3});
  }
  report.predicted_step = timeline;
  report.measured_step = timeline;
  report.config = "[train]\nsteps = 400\n";
  return report;
}

TEST(RunReport, ShowsWhatCompressionLoses_WhereGradientsAreCompressed) {
  RunReport report = some_report();
  EXPECT_EQ(run_report_html(report).find("Compression of gradients"), std::string::npos);
  for (StepMetrics& metrics : report.metrics) metrics.compression_ratio = 50.0, metrics.compression_error = 0.75;
  const std::string html = run_report_html(report);
  EXPECT_NE(html.find("Compression of gradients"), std::string::npos);
  EXPECT_NE(html.find("50.0 bytes of fp32 in one"), std::string::npos);
}

TEST(RunReport, StacksTheBytesOfEachTier_AndTabulatesWhatMovesBetweenThem) {
  RunReport report = some_report();
  const std::string without = run_report_html(report);
  EXPECT_EQ(without.find("Bytes of each tier over a step"), without.npos);
  EXPECT_EQ(without.find("Copies between tiers"), without.npos);
  for (program::OpMemory& op : report.predicted_memory) op.host_bytes = int64_t{64} << 20, op.file_bytes = 200 << 20;
  report.predicted_traffic = {{"device to host", int64_t{12} << 20, 6e3, 4.5e3}, {"files to host", 200 << 20, 1e5, 0}};
  report.measured_traffic = {{"device to host", int64_t{12} << 20, 7e3, 7e3}, {"files to host", 200 << 20, 2e5, 5e4}};
  const std::string html = run_report_html(report);
  EXPECT_FALSE(std::regex_search(html, std::regex("(src|href)\\s*=|@import|url\\(http"))) << "it would load something";
  for (const char* words : {"Bytes of each tier over a step", "host 64 MiB", "Copies between tiers", "device to host",
                            "12 MiB", "6 ms", "2.10", "75.0 %", "7 ms", "1.80", "100.0 %", "files to host", "200 MiB",
                            "0.0 %", "25.0 %", "predicted GB/s", "measured hidden"})
    EXPECT_NE(html.find(words), html.npos) << words;
  if (const char* path = std::getenv("HERD_KEEP_REPORT")) std::ofstream(std::string(path) + ".tiers.html") << html;
}

TEST(RunReport, SaysWhatIsSentToExperts_AndHowManyChoicesAreClose) {
  RunReport report = some_report();
  EXPECT_EQ(run_report_html(report).find("Dispatch to experts"), std::string::npos);
  EXPECT_EQ(run_report_html(report).find("choices of experts that another rounding"), std::string::npos);
  report.predicted_expert_traffic = {{program::ExpertWay::kRows, int64_t{3} << 20, 4e3, 1e3},
                                     {program::ExpertWay::kOutputs, int64_t{2} << 20, 6e3, 6e3}};
  report.measured_expert_traffic = {{program::ExpertWay::kRows, int64_t{4} << 20, 8e3, 0},
                                    {program::ExpertWay::kOutputs, int64_t{5} << 20, 8e3, 4e3}};
  for (StepMetrics& step : report.metrics) step.close_choices = {0, 1};
  const std::string html = run_report_html(report);
  for (const char* words : {"Dispatch to experts", "rows to experts", "outputs back", "3 MiB", "4 MiB", "4 ms",
                            "25.0 %", "9 MiB", "16 ms", "70.0 %", "400 of 1.64 M tokens and layers",
                            "another rounding in fp32 may change; one in 16 bits changes more"})
    EXPECT_NE(html.find(words), html.npos) << words;
}

TEST(RunReport, IsOneFileThatLoadsNothing) {
  const std::string html = run_report_html(some_report());
  EXPECT_FALSE(std::regex_search(html, std::regex("(src|href)\\s*=|@import|url\\(http"))) << "it would load something";
  EXPECT_NE(html.find("gpt_kjv &lt;one &amp; only&gt;"), std::string::npos) << "names are escaped";
  for (const char* words : {"Loss", "validation", "Predicted and measured", "Speed", "tokens seen", "smoothed",
                            "Memory over a step", "Device memory", "Measured peak", "most: 120 MiB at loss block1 mb0",
                            "predicted", "activations", "One step", "direct_pull", "steps = 400", "480 ms", "104 %"}) {
    EXPECT_NE(html.find(words), std::string::npos) << words;
  }
  // HERD_KEEP_REPORT=/tmp/report.html keeps it, to be looked at.
  if (const char* path = std::getenv("HERD_KEEP_REPORT")) std::ofstream(path) << html;
}

TEST(RunReport, ARunWithoutStepsOrPredictionsHasAPageToo) {
  RunReport report;
  report.title = "empty";
  EXPECT_NE(run_report_html(report).find("empty"), std::string::npos);
  StepMetrics metrics;
  metrics.step = 1;
  report.metrics = {metrics};
  EXPECT_EQ(run_report_html(report).find("nan"), std::string::npos) << "what is not known is a dash";
}

TEST(RunReport, TheSameRunGivesTheSameBytes) {
  EXPECT_EQ(run_report_html(some_report()), run_report_html(some_report()));
}

TEST(RunReport, OfALongRunIsNotLong_AndTheListOfOpsComesLast) {
  RunReport report = some_report();
  for (int64_t step = 401; step <= 100'000; ++step) {
    report.metrics.push_back(report.metrics[static_cast<size_t>(step % 400)]);
    report.metrics.back().step = step;
  }
  const std::string html = run_report_html(report);
  EXPECT_LT(html.size(), 600'000);
  EXPECT_GT(html.find("MiB of every op"), html.find("steps = 400"));
}

TEST(MeasuredTimeline, HoldsAllRanksOnRankZero) {
  run_inproc(3, [](Communicator& comm) {
    const std::string group = "rank " + std::to_string(comm.rank());
    sim::Timeline mine{"", {{group, "compute"}}, {{0, "forward of block0 mb0", "forward", 0, 5.5}}};
    if (comm.rank() == 1) mine = {};
    const sim::Timeline all = gather_timelines(mine, comm);
    if (comm.rank() != 0) {
      EXPECT_TRUE(all.rows.empty());
      return;
    }
    ASSERT_EQ(all.rows.size(), 2u);
    EXPECT_EQ(all.rows[1].group, "rank 2");
    ASSERT_EQ(all.spans.size(), 2u);
    EXPECT_EQ(all.spans[1].row, 1);
    EXPECT_EQ(all.spans[1].name, "forward of block0 mb0");
    EXPECT_EQ(all.spans[1].end_us, 5.5);
  });
}

TEST(MeasuredTimeline, PutsOneStepBehindTheOther) {
  const sim::Timeline step{"", {{"rank 0", "compute"}}, {{0, "a", "", 0, 5}}};
  sim::Timeline trace;
  append(trace, step, 0);
  append(trace, step, 7);
  ASSERT_EQ(trace.spans.size(), 2u);
  EXPECT_EQ(trace.rows.size(), 1u);
  EXPECT_EQ(trace.spans[1].start_us, 7);
  EXPECT_EQ(trace.spans[1].end_us, 12);
}

}  // namespace
}  // namespace herd::train
