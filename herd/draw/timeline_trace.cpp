#include <map>
#include <nlohmann/json.hpp>

#include "herd/draw/timeline_picture.h"

namespace herd::draw {

std::string timeline_trace(const sim::Timeline& timeline) {
  using nlohmann::json;
  json events = json::array();
  std::map<std::string, int> processes;
  std::vector<int> process_of_row;
  for (size_t row = 0; row < timeline.rows.size(); ++row) {
    const auto [found, added] = processes.try_emplace(timeline.rows[row].group, static_cast<int>(processes.size()) + 1);
    process_of_row.push_back(found->second);
    if (added) {
      events.push_back(
          {{"ph", "M"}, {"name", "process_name"}, {"pid", found->second}, {"args", {{"name", found->first}}}});
    }
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", found->second},
                      {"tid", row + 1},
                      {"args", {{"name", timeline.rows[row].name}}}});
    events.push_back({{"ph", "M"},
                      {"name", "thread_sort_index"},
                      {"pid", found->second},
                      {"tid", row + 1},
                      {"args", {{"sort_index", row}}}});
  }
  for (const sim::Span& span : timeline.spans) {
    json event = {{"ph", "X"},
                  {"name", span.name},
                  {"cat", span.category},
                  {"pid", process_of_row[span.row]},
                  {"tid", span.row + 1},
                  {"ts", span.start_us},
                  {"dur", span.end_us - span.start_us}};
    if (!span.detail.empty()) event["args"] = {{"detail", span.detail}};
    events.push_back(std::move(event));
  }
  const json trace = {{"displayTimeUnit", "ns"}, {"otherData", {{"title", timeline.title}}}, {"traceEvents", events}};
  return trace.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace herd::draw
