#include "herd/train/run_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "herd/base/median.h"
#include "herd/base/units.h"
#include "herd/draw/chart.h"
#include "herd/draw/page.h"
#include "herd/draw/svg.h"
#include "herd/draw/table.h"
#include "herd/draw/timeline_picture.h"
#include "herd/program/draw_program.h"
#include "herd/train/expert_load_figure.h"

namespace herd::train {
namespace {

using Points = std::vector<std::pair<double, double>>;

// Returns at most some 2,000 points: of a longer run means of as many steps as it takes.
Points points_of(const std::vector<StepMetrics>& metrics, const std::function<double(const StepMetrics&)>& value) {
  constexpr size_t kMostPoints = 2000;
  const size_t together = 1 + metrics.size() / kMostPoints;
  Points points;
  double sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < metrics.size(); ++i) {
    const double y = value(metrics[i]);
    if (std::isfinite(y)) {
      sum += y;
      ++count;
    }
    if ((i + 1) % together != 0 && i + 1 < metrics.size()) continue;
    if (count > 0) points.emplace_back(static_cast<double>(metrics[i].step), sum / static_cast<double>(count));
    sum = 0;
    count = 0;
  }
  return points;
}

// Returns an exponential moving average over a fortieth of the points, corrected for its begin.
Points smoothed(const Points& points) {
  const double keep = 1 - 40.0 / std::max<double>(80, static_cast<double>(points.size()));
  Points smooth;
  double sum = 0, weight = 0;
  for (const auto& [x, y] : points) {
    sum = keep * sum + y;
    weight = keep * weight + 1;
    smooth.emplace_back(x, sum / weight);
  }
  return smooth;
}

std::string number(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

double median_of(const std::vector<StepMetrics>& metrics, double StepMetrics::*member) {
  std::vector<double> values;
  for (const auto& step : metrics) values.push_back(step.*member);
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  return median(std::move(values));
}

// Returns the share of a prediction, as "102 %"; "-" where there is none.
std::string share_of(double measured, double predicted) {
  return predicted > 0 ? number(100 * measured / predicted, 0) + " %" : "-";
}

draw::Section summary(const RunReport& report) {
  draw::Table table{{{"fact", false}, {"value", false}}, {}};
  const auto& metrics = report.metrics;
  if (!metrics.empty()) {
    table.rows.push_back({"steps", std::to_string(metrics.back().step)});
    int64_t tokens = 0;
    for (const auto& step : metrics) tokens += step.tokens;
    table.rows.push_back({"tokens seen", format_count(static_cast<double>(tokens))});
    table.rows.push_back({"loss of the last step", number(metrics.back().loss, 4) + " nats a token"});
    const auto evaluated = std::find_if(metrics.rbegin(), metrics.rend(), [](const auto& m) { return m.val_loss; });
    if (evaluated != metrics.rend()) {
      table.rows.push_back({"last validation loss", number(*evaluated->val_loss, 4) + " nats a token, after step " +
                                                        std::to_string(evaluated->step)});
    }
    table.rows.push_back({"speed, median", format_count(median_of(metrics, &StepMetrics::tokens_per_s)) + " tokens/s"});
  }
  const auto coded = std::find_if(metrics.rbegin(), metrics.rend(), [](const auto& m) { return m.compression_ratio; });
  if (coded != metrics.rend()) {
    table.rows.push_back({"compression of gradients", number(*coded->compression_ratio, 1) + " bytes of fp32 in one"});
  }
  int64_t close = 0, routed = 0;
  for (const auto& step : metrics) {
    for (const int64_t of_layer : step.close_choices) close += of_layer, routed += step.tokens;
  }
  if (close > 0) {
    table.rows.push_back(
        {"choices of experts that another rounding in fp32 may change; one in 16 bits changes more",
         std::to_string(close) + " of " + format_count(static_cast<double>(routed)) + " tokens and layers"});
  }
  for (const auto& [name, value] : report.facts) table.rows.push_back({name, value});
  return {"", draw::html_table(table)};
}

draw::Section predictions(const RunReport& report) {
  const auto& metrics = report.metrics;
  const double step_ms = median_of(metrics, &StepMetrics::step_ms);
  const double predicted_ms = report.predicted_step_ms;
  int64_t peak = 0, predicted_peak = 0;
  for (const auto& step : metrics) {
    peak = std::max(peak, step.device_bytes_peak);
    predicted_peak = std::max(predicted_peak, step.predicted_device_bytes_peak);
  }
  draw::Table table{{{"", false}, {"predicted", true}, {"measured", true}, {"measured / predicted", true}}, {}};
  table.rows.push_back({"step, the median", predicted_ms > 0 ? format_us(predicted_ms * 1e3) : "-",
                        format_us(step_ms * 1e3), share_of(step_ms, predicted_ms)});
  table.rows.push_back({"peak of device memory",
                        predicted_peak > 0 ? format_bytes(static_cast<double>(predicted_peak)) : "-",
                        format_bytes(static_cast<double>(peak)),
                        share_of(static_cast<double>(peak), static_cast<double>(predicted_peak))});
  return {"Predicted and measured", draw::html_table(table)};
}

draw::Section losses(const RunReport& report) {
  draw::Chart chart{.x_label = "step", .y_label = "nats a token"};
  Points training = points_of(report.metrics, [](const auto& m) { return m.loss; });
  if (training.size() >= 40) {
    chart.series.push_back({"training, smoothed", smoothed(training)});
    chart.series.push_back({.name = "training", .points = std::move(training), .pale = true});
  } else {
    chart.series.push_back({"training", std::move(training)});
  }
  Points validation = points_of(report.metrics, [](const auto& m) { return m.val_loss.value_or(std::nan("")); });
  if (!validation.empty()) chart.series.push_back({"validation", std::move(validation)});
  return {"Loss", draw::line_chart(chart)};
}

draw::Section speed(const RunReport& report) {
  draw::Chart rate{.x_label = "step", .y_label = "tokens/s", .y_unit = draw::Unit::kCount};
  rate.from_zero = true;
  rate.series.push_back({"tokens/s", points_of(report.metrics, [](const auto& m) { return m.tokens_per_s; })});
  draw::Chart chart{.x_label = "step", .y_label = "time of a step", .y_unit = draw::Unit::kMicroseconds};
  chart.from_zero = true;
  chart.series.push_back({"measured", points_of(report.metrics, [](const auto& m) { return 1e3 * m.step_ms; })});
  chart.series.push_back(
      {"waiting for communication", points_of(report.metrics, [](const auto& m) { return 1e3 * m.comm_wait_ms; })});
  chart.limit = 1e3 * report.predicted_step_ms;
  if (chart.limit > 0) {
    chart.limit_name = "predicted before the first step";
  } else {
    chart.limit = std::nan("");
  }
  return {"Speed", draw::line_chart(chart) + draw::line_chart(rate)};
}

draw::Section optimizer(const RunReport& report) {
  draw::Chart norm{.x_label = "step", .y_label = "gradient norm, before clipping"};
  norm.series.push_back({"gradient norm", points_of(report.metrics, [](const auto& m) { return m.grad_norm; })});
  draw::Chart rate{.x_label = "step", .y_label = "learning rate"};
  rate.from_zero = true;
  rate.series.push_back({"learning rate", points_of(report.metrics, [](const auto& m) { return m.lr; })});
  return {"Optimizer", draw::line_chart(norm) + draw::line_chart(rate)};
}

// Returns what encoding loses of each step's gradients; nothing where none is encoded.
std::vector<draw::Section> compression(const RunReport& report) {
  draw::Chart chart{.x_label = "step", .y_label = "lost by encoding, as a share of the gradient"};
  chart.from_zero = true;
  Points error = points_of(report.metrics, [](const auto& m) { return m.compression_error.value_or(std::nan("")); });
  if (error.empty()) return {};
  chart.series.push_back({"lost by encoding, and brought by the next step", std::move(error)});
  return {{"Compression of gradients", draw::line_chart(chart)}};
}

// Returns how many tokens the experts got; nothing for a model without experts.
std::vector<draw::Section> experts(const RunReport& report) {
  Points worst = points_of(report.metrics, [](const auto& m) { return m.expert_imbalance.value_or(std::nan("")); });
  if (worst.empty()) return {};
  draw::Chart chart{.x_label = "step", .y_label = "tokens of the busiest expert over the mean"};
  chart.series.push_back({"in the least balanced layer", std::move(worst)});
  return {
      {"Load of the experts", draw::line_chart(chart) + expert_load_figure(report.metrics, report.first_expert_layer)}};
}

// Returns what rank 0 sends to the ranks of other experts; nothing where all have all.
std::vector<draw::Section> dispatch(const RunReport& report) {
  const std::string table =
      program::expert_traffic_table(report.predicted_expert_traffic, report.measured_expert_traffic);
  if (table.empty()) return {};
  return {{"Dispatch to experts",
           "<p>What rank 0 sends in a step to the ranks that hold other experts, and the time in which it does so or "
           "waits for them. Predicted bytes are those of a uniform router, of which each row goes by itself. Hidden: "
           "while exchanges run, the compute lane runs, too.</p>\n" +
               table}};
}

draw::Section memory(const RunReport& report) {
  int64_t peak = 0;
  for (const auto& step : report.metrics) peak = std::max(peak, step.device_bytes_peak);
  const bool measured = !report.measured_memory.empty();
  std::string html =
      measured
          ? "<p>What rank 0's device held while each op of a step ran, as its allocator counted it, and the total that "
            "was predicted before the first step. Point at an op for its figures.</p>\n"
          : "<p>What rank 0's device was predicted to hold while each op of a step runs; no step was recorded "
            "(log.trace_steps). Point at an op for its figures.</p>\n";
  html += measured ? program::memory_figure(report.measured_memory, report.predicted_memory, report.device_budget)
                   : program::memory_figure(report.predicted_memory, {}, report.device_budget);
  html +=
      "<p>Activations: what forward leaves for backward, and gradients that flow. Buffers: whole weights and gradients "
      "while a block is at work where they are cut, and what an op takes and gives back.</p>\n";
  html += program::memory_table(report.predicted_memory, report.measured_memory);
  html += "<p>Measured peak of all steps: " + format_bytes(static_cast<double>(peak)) + ".";
  if (report.device_budget > 0) {
    html += " Budget " + format_bytes(static_cast<double>(report.device_budget)) + ", " +
            share_of(static_cast<double>(peak), static_cast<double>(report.device_budget)) + " of it used.";
  }
  html += "</p>\n";
  if (const std::string tiers = program::tier_figure(report.predicted_memory, report.predicted_traffic); !tiers.empty())
    html += "<p>With it, what values on the host and in files are predicted to hold.</p>\n" + tiers;
  return {"Memory over a step", html};
}

// Returns what rank 0 moves between its tiers; nothing where all stays on the device.
std::vector<draw::Section> traffic(const RunReport& report) {
  const std::string table = program::traffic_table(report.predicted_traffic, report.measured_traffic);
  if (table.empty()) return {};
  return {{"Copies between tiers",
           "<p>What rank 0 moves in a step. Hidden: while copies run, the compute lane runs, too.</p>\n" + table}};
}

draw::Section timelines(const RunReport& report) {
  std::string html;
  if (report.predicted_step) html += "<h3>Predicted</h3>\n" + draw::timeline_svg(*report.predicted_step);
  if (report.measured_step) html += "<h3>Measured</h3>\n" + draw::timeline_svg(*report.measured_step);
  return {"One step of all ranks", html};
}

}  // namespace

std::string run_report_html(const RunReport& report) {
  std::vector<draw::Section> sections = {summary(report)};
  if (!report.metrics.empty()) {
    for (const auto& section : {losses(report), predictions(report), speed(report)}) sections.push_back(section);
  }
  if (report.predicted_step || report.measured_step) sections.push_back(timelines(report));
  if (!report.predicted_memory.empty() || !report.measured_memory.empty()) sections.push_back(memory(report));
  for (draw::Section& section : traffic(report)) sections.push_back(std::move(section));
  if (!report.metrics.empty()) sections.push_back(optimizer(report));
  for (draw::Section& section : compression(report)) sections.push_back(std::move(section));
  for (draw::Section& section : experts(report)) sections.push_back(std::move(section));
  for (draw::Section& section : dispatch(report)) sections.push_back(std::move(section));
  if (!report.config.empty()) sections.push_back({"Run file", "<pre>" + draw::escape(report.config) + "</pre>\n"});
  if (const std::string ops = program::op_memory_table(report.predicted_memory, report.measured_memory); !ops.empty())
    sections.push_back({"Every op", ops});
  return draw::html_page(report.title, sections);
}

}  // namespace herd::train
