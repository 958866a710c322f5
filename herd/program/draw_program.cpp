#include "herd/program/draw_program.h"

#include <algorithm>
#include <cstdio>

#include "herd/base/units.h"
#include "herd/draw/chart.h"
#include "herd/draw/page.h"
#include "herd/draw/svg.h"
#include "herd/draw/table.h"
#include "herd/draw/timeline_picture.h"
#include "herd/program/program_names.h"
#include "herd/program/program_text.h"

namespace herd::program {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

std::string mib(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", static_cast<double>(bytes) / kMiB);
  return text;
}

std::string share(int64_t bytes, int64_t of) {
  if (of <= 0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * static_cast<double>(bytes) / static_cast<double>(of));
  return text;
}

const OpMemory* same_op(const std::vector<OpMemory>& step, int op) {
  const auto at = std::find_if(step.begin(), step.end(), [op](const OpMemory& one) { return one.op == op; });
  return at == step.end() ? nullptr : &*at;
}

// Returns the time until which an op is drawn: the begin of the next one.
double end_of(const std::vector<OpMemory>& step, size_t i) {
  return i + 1 < step.size() ? step[i + 1].begin_us : step[i].end_us;
}

void add_step(draw::Series& to, double from_us, double to_us, double bytes) {
  to.points.emplace_back(from_us / 1e3, bytes / kMiB);
  to.points.emplace_back(to_us / 1e3, bytes / kMiB);
}

}  // namespace

std::string memory_figure(const std::vector<OpMemory>& step, const std::vector<OpMemory>& predicted, int64_t limit) {
  const OpMemory* peak = peak_of(step);
  if (peak == nullptr) return "";
  draw::Chart chart{.title = "Device memory over a step", .x_label = "ms from the step's start", .y_label = "MiB"};
  draw::Series predicted_line{"predicted", {}};
  for (int use = 0; use < kNumMemoryUses; ++use)
    chart.series.push_back({std::string(use_name(static_cast<MemoryUse>(use))), {}});
  for (size_t i = 0; i < step.size(); ++i) {
    const OpMemory& one = step[i];
    const double end = end_of(step, i);
    std::string hover = one.name + ": " + format_bytes(static_cast<double>(one.total()));
    for (size_t use = 0; use < one.bytes.size(); ++use) {
      add_step(chart.series[use], one.begin_us, end, static_cast<double>(one.bytes[use]));
      hover += "\n" + std::string(use_name(static_cast<MemoryUse>(use))) + " " +
               format_bytes(static_cast<double>(one.bytes[use]));
    }
    if (const OpMemory* predicted_op = same_op(predicted, one.op)) {
      add_step(predicted_line, one.begin_us, end, static_cast<double>(predicted_op->total()));
      hover += "\npredicted " + format_bytes(static_cast<double>(predicted_op->total()));
    }
    chart.bands.push_back({one.begin_us / 1e3, end / 1e3, hover});
  }
  if (!predicted_line.points.empty()) chart.lines.push_back(std::move(predicted_line));
  chart.mark_x = peak->begin_us / 1e3;
  chart.mark_name = "most: " + format_bytes(static_cast<double>(peak->total())) + " at " + peak->name;
  if (limit > 0 && static_cast<double>(limit) < 2 * static_cast<double>(peak->total())) {
    chart.limit = static_cast<double>(limit) / kMiB;
    chart.limit_name = "budget " + format_bytes(static_cast<double>(limit));
  }
  return "<figure>" + draw::stacked_areas(chart) + "</figure>\n";
}

std::string memory_tables(const std::vector<OpMemory>& predicted, const std::vector<OpMemory>& measured) {
  const std::vector<OpMemory>& step = measured.empty() ? predicted : measured;
  const OpMemory* peak = peak_of(step);
  if (peak == nullptr) return "";
  const bool both = !predicted.empty() && !measured.empty();
  draw::Table uses{{{"MiB at " + peak->name}}, {}}, ops{{{"op"}, {"at ms", true}}, {}};
  for (draw::Table* table : {&uses, &ops}) {
    if (!predicted.empty()) table->columns.push_back({"predicted", true});
    if (!measured.empty()) table->columns.push_back({"measured", true});
    if (both) table->columns.push_back({"measured / predicted", true});
  }
  const auto add = [&](draw::Table& table, std::vector<std::string> row, int64_t expected, int64_t actual) {
    if (!predicted.empty()) row.push_back(mib(expected));
    if (!measured.empty()) row.push_back(mib(actual));
    if (both) row.push_back(share(actual, expected));
    table.rows.push_back(std::move(row));
  };
  const OpMemory none;
  const auto find = [&](const std::vector<OpMemory>& in, int op) -> const OpMemory& {
    const OpMemory* found = same_op(in, op);
    return found == nullptr ? none : *found;
  };
  const OpMemory &expected = find(predicted, peak->op), &actual = find(measured, peak->op);
  for (size_t use = 0; use < expected.bytes.size(); ++use)
    add(uses, {std::string(use_name(static_cast<MemoryUse>(use)))}, expected.bytes[use], actual.bytes[use]);
  add(uses, {"total"}, expected.total(), actual.total());
  for (const OpMemory& one : step) {
    char at[32];
    std::snprintf(at, sizeof at, "%.1f", one.begin_us / 1e3);
    add(ops, {one.name, at}, find(predicted, one.op).total(), find(measured, one.op).total());
  }
  return draw::html_table(uses) + "<details><summary>MiB of every op</summary>\n" + draw::html_table(ops) +
         "</details>\n";
}

std::string program_page(const Program& step, const Simulation& simulation) {
  return draw::html_page(
      "Training step of rank " + std::to_string(step.rank) + ", " + format_us(simulation.step_us) + " predicted",
      {{"Ops over time", "<figure>" + draw::timeline_svg(simulation.timeline) + "</figure>"},
       {"Device memory over the step", memory_figure(simulation.memory, {}, 0) + memory_tables(simulation.memory, {})},
       {"Ops", "<pre>" + draw::escape(to_text(step)) + "</pre>\n"}});
}

}  // namespace herd::program
