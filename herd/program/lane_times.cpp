#include <algorithm>
#include <string>

#include "herd/program/lane_times_internal.h"
#include "herd/program/program_names.h"

namespace herd::program {
namespace {

TimeRanges joined(TimeRanges ranges) {
  std::sort(ranges.begin(), ranges.end());
  TimeRanges out;
  for (const auto& [begin, end] : ranges) {
    if (!out.empty() && begin <= out.back().second)
      out.back().second = std::max(out.back().second, end);
    else
      out.emplace_back(begin, end);
  }
  return out;
}

}  // namespace

TimeRanges times_of(const sim::Timeline& timeline, int rank, Lane lane,
                    const std::function<bool(const sim::Span&)>& counts) {
  const std::string group = "rank " + std::to_string(rank);
  TimeRanges out;
  for (const sim::Span& span : timeline.spans) {
    const sim::Row& row = timeline.rows[static_cast<size_t>(span.row)];
    if (row.group != group || row.name != lane_name(lane)) continue;
    if (!counts || counts(span)) out.emplace_back(span.start_us, span.end_us);
  }
  return joined(std::move(out));
}

double length(const TimeRanges& ranges) {
  double sum = 0;
  for (const auto& [begin, end] : ranges) sum += end - begin;
  return sum;
}

double common_length(const TimeRanges& a, const TimeRanges& b) {
  double sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    ++(a[i].second < b[j].second ? i : j);
  }
  return sum;
}

}  // namespace herd::program
