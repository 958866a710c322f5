#include "herd/program/draw.h"

#include <algorithm>

#include "herd/base/units.h"
#include "herd/draw/page.h"
#include "herd/draw/svg.h"
#include "herd/draw/timeline.h"
#include "herd/program/names.h"
#include "herd/program/text.h"

namespace herd::program {

std::vector<draw::Series> memory_series(const Simulation& simulation) {
  std::map<ValueKind, draw::Series> kinds;
  draw::Series scratch{"scratch", {}};
  for (const MemoryPoint& point : simulation.memory) {
    for (const auto& [kind, bytes] : point.by_kind) {
      kinds.try_emplace(kind, draw::Series{std::string(kind_name(kind)), {}});
    }
  }
  for (const MemoryPoint& point : simulation.memory) {
    // Memory changes at once: what was held up to here, then what is held from here.
    const auto add = [&](draw::Series& to, int64_t bytes) {
      if (!to.points.empty()) to.points.emplace_back(point.at_us, to.points.back().second);
      to.points.emplace_back(point.at_us, static_cast<double>(bytes));
    };
    for (auto& [kind, to] : kinds) {
      const auto bytes = point.by_kind.find(kind);
      add(to, bytes == point.by_kind.end() ? 0 : bytes->second);
    }
    add(scratch, point.scratch_bytes);
  }
  // What nobody would see (norms, labels) is left out.
  const double seen = static_cast<double>(simulation.device_peak.bytes) / 1000;
  const auto shown = [&](const draw::Series& one) {
    return std::any_of(one.points.begin(), one.points.end(), [&](const auto& at) { return at.second >= seen; });
  };
  std::vector<draw::Series> all;
  for (auto& [kind, one] : kinds) {
    if (shown(one)) all.push_back(std::move(one));
  }
  if (shown(scratch)) all.push_back(std::move(scratch));
  return all;
}

draw::Chart memory_chart(std::vector<draw::Series> series, const std::string& title) {
  for (draw::Series& one : series) {
    for (auto& [us, bytes] : one.points) {
      us /= 1e3;
      bytes /= 1024.0 * 1024.0;
    }
  }
  return {.title = title, .x_label = "ms", .y_label = "MiB", .series = std::move(series)};
}

std::string program_page(const Program& step, const Simulation& simulation) {
  const draw::Chart chart =
      memory_chart(memory_series(simulation), "Device memory of rank " + std::to_string(step.rank));
  const std::string peak = "<p>Peak " + draw::escape(format_bytes(static_cast<double>(simulation.device_peak.bytes))) +
                           "</p><pre>" + draw::escape(memory_table(simulation.device_peak)) + "</pre>";
  return draw::html_page(
      "Training step of rank " + std::to_string(step.rank) + ", " + format_us(simulation.step_us) + " predicted",
      {{"Ops over time", "<figure>" + draw::timeline_svg(simulation.timeline) + "</figure>"},
       {"Memory over time", "<figure>" + draw::stacked_areas(chart) + "</figure>" + peak},
       {"Ops", "<pre>" + draw::escape(to_text(step)) + "</pre>\n"}});
}

}  // namespace herd::program
