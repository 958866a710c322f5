#include "herd/program/draw_program.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

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
  to.points.emplace_back(from_us, bytes);
  to.points.emplace_back(to_us, bytes);
}

// Makes a table of bytes, predicted beside measured.
class MemoryRows {
 public:
  MemoryRows(std::vector<draw::Column> columns, bool predicted, bool measured)
      : table_{std::move(columns), {}}, predicted_(predicted), measured_(measured) {
    if (predicted_) table_.columns.push_back({"predicted", true});
    if (measured_) table_.columns.push_back({"measured", true});
    if (predicted_ && measured_) table_.columns.push_back({"measured / predicted", true});
  }
  void add(std::vector<std::string> row, int64_t expected, int64_t actual) {
    if (predicted_) row.push_back(mib(expected));
    if (measured_) row.push_back(mib(actual));
    if (predicted_ && measured_) row.push_back(share(actual, expected));
    table_.rows.push_back(std::move(row));
  }
  const draw::Table& table() const { return table_; }

 private:
  draw::Table table_;
  bool predicted_, measured_;
};

}  // namespace

std::string memory_figure(const std::vector<OpMemory>& step, const std::vector<OpMemory>& predicted, int64_t limit) {
  const OpMemory* peak = peak_of(step);
  if (peak == nullptr) return "";
  draw::Chart chart{.title = "Device memory over a step",
                    .x_label = "from the step's start",
                    .x_unit = draw::Unit::kMicroseconds,
                    .y_unit = draw::Unit::kBytes};
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
    chart.bands.push_back({one.begin_us, end, hover});
  }
  if (!predicted_line.points.empty()) chart.lines.push_back(std::move(predicted_line));
  chart.mark_x = peak->begin_us;
  chart.mark_name = "most: " + format_bytes(static_cast<double>(peak->total())) + " at " + peak->name;
  if (limit > 0 && static_cast<double>(limit) < 2 * static_cast<double>(peak->total())) {
    chart.limit = static_cast<double>(limit);
    chart.limit_name = "budget " + format_bytes(static_cast<double>(limit));
  }
  return "<figure>" + draw::stacked_areas(chart) + "</figure>\n";
}

std::string memory_table(const std::vector<OpMemory>& predicted, const std::vector<OpMemory>& measured) {
  const OpMemory* peak = peak_of(measured.empty() ? predicted : measured);
  if (peak == nullptr) return "";
  MemoryRows uses({{"MiB at " + peak->name}}, !predicted.empty(), !measured.empty());
  const OpMemory none;
  const OpMemory *expected = same_op(predicted, peak->op), *actual = same_op(measured, peak->op);
  if (expected == nullptr) expected = &none;
  if (actual == nullptr) actual = &none;
  for (size_t use = 0; use < expected->bytes.size(); ++use)
    uses.add({std::string(use_name(static_cast<MemoryUse>(use)))}, expected->bytes[use], actual->bytes[use]);
  uses.add({"total"}, expected->total(), actual->total());
  return draw::html_table(uses.table());
}

std::string tier_figure(const std::vector<OpMemory>& predicted, const std::vector<TierTraffic>& traffic) {
  if (predicted.empty() || traffic.empty()) return "";
  draw::Chart chart{.title = "Bytes of each tier over a step",
                    .x_label = "from the step's start",
                    .x_unit = draw::Unit::kMicroseconds,
                    .y_unit = draw::Unit::kBytes,
                    .series = {{"device", {}}, {"host", {}}, {"files", {}}}};
  for (size_t i = 0; i < predicted.size(); ++i) {
    const OpMemory& one = predicted[i];
    const std::array<int64_t, 3> of_tiers = {one.total(), one.host_bytes, one.file_bytes};
    std::string hover = one.name;
    for (size_t tier = 0; tier < of_tiers.size(); ++tier) {
      add_step(chart.series[tier], one.begin_us, end_of(predicted, i), static_cast<double>(of_tiers[tier]));
      hover += "\n" + chart.series[tier].name + " " + format_bytes(static_cast<double>(of_tiers[tier]));
    }
    chart.bands.push_back({one.begin_us, end_of(predicted, i), hover});
  }
  return "<figure>" + draw::stacked_areas(chart) + "</figure>\n";
}

std::string traffic_table(const std::vector<TierTraffic>& predicted, const std::vector<TierTraffic>& measured) {
  const std::vector<TierTraffic>& all = measured.empty() ? predicted : measured;
  if (all.empty()) return "";
  draw::Table table{{{"copies"}, {"bytes of a step", true}}, {}};
  for (const TierTraffic& one : all)
    table.rows.push_back({std::string(one.way), format_bytes(static_cast<double>(one.bytes))});
  for (const auto& [name, traffic] : {std::pair("predicted", &predicted), {"measured", &measured}}) {
    if (traffic->size() != all.size()) continue;
    for (const char* column : {"", " GB/s", " hidden"}) table.columns.push_back({std::string(name) + column, true});
    for (size_t i = 0; i < all.size(); ++i) {
      const TierTraffic& one = (*traffic)[i];
      char rate[32] = "-";
      if (one.busy_us > 0) std::snprintf(rate, sizeof rate, "%.2f", static_cast<double>(one.bytes) / one.busy_us / 1e3);
      for (std::string cell :
           {format_us(one.busy_us), std::string(rate),
            share(static_cast<int64_t>(one.hidden_us * 1e3), static_cast<int64_t>(one.busy_us * 1e3))})
        table.rows[i].push_back(std::move(cell));
    }
  }
  return draw::html_table(table);
}

std::string expert_traffic_table(const std::vector<ExpertTraffic>& predicted,
                                 const std::vector<ExpertTraffic>& measured) {
  const std::vector<ExpertTraffic>& all = measured.empty() ? predicted : measured;
  if (all.empty()) return "";
  draw::Table table{{{"exchanges of a step"}}, {}};
  for (const ExpertTraffic& one : all) table.rows.push_back({std::string(way_name(one.way))});
  table.rows.push_back({"all"});
  for (const auto& [name, traffic] : {std::pair("predicted", &predicted), {"measured", &measured}}) {
    if (traffic->size() != all.size()) continue;
    for (const char* column : {" bytes sent", "", " hidden"})
      table.columns.push_back({std::string(name) + column, true});
    ExpertTraffic sum;
    const auto add_cells = [&](size_t row, const ExpertTraffic& one) {
      table.rows[row].push_back(format_bytes(static_cast<double>(one.bytes)));
      table.rows[row].push_back(format_us(one.busy_us));
      table.rows[row].push_back(
          share(static_cast<int64_t>(one.hidden_us * 1e3), static_cast<int64_t>(one.busy_us * 1e3)));
    };
    for (size_t i = 0; i < all.size(); ++i) {
      const ExpertTraffic& one = (*traffic)[i];
      add_cells(i, one);
      sum.bytes += one.bytes, sum.busy_us += one.busy_us, sum.hidden_us += one.hidden_us;
    }
    add_cells(all.size(), sum);
  }
  return draw::html_table(table);
}

std::string op_memory_table(const std::vector<OpMemory>& predicted, const std::vector<OpMemory>& measured) {
  const std::vector<OpMemory>& step = measured.empty() ? predicted : measured;
  if (step.empty()) return "";
  MemoryRows ops({{"op"}, {"at ms", true}}, !predicted.empty(), !measured.empty());
  for (const OpMemory& one : step) {
    char at[32];
    std::snprintf(at, sizeof at, "%.1f", one.begin_us / 1e3);
    const OpMemory *expected = same_op(predicted, one.op), *actual = same_op(measured, one.op);
    ops.add({one.name, at}, expected == nullptr ? 0 : expected->total(), actual == nullptr ? 0 : actual->total());
  }
  return "<details><summary>MiB of every op</summary>\n" + draw::html_table(ops.table()) + "</details>\n";
}

std::string program_page(const Program& step, const Simulation& simulation) {
  return draw::html_page(
      "Training step of rank " + std::to_string(step.rank) + ", " + format_us(simulation.step_us) + " predicted",
      {{"Ops over time", "<figure>" + draw::timeline_svg(simulation.timeline) + "</figure>"},
       {"Memory over the step", memory_figure(simulation.memory, {}, 0) + memory_table(simulation.memory, {}) +
                                    tier_figure(simulation.memory, simulation.traffic) +
                                    traffic_table(simulation.traffic, {}) +
                                    expert_traffic_table(simulation.expert_traffic, {})},
       {"Ops", op_memory_table(simulation.memory, {}) + "<pre>" + draw::escape(to_text(step)) + "</pre>\n"}});
}

}  // namespace herd::program
