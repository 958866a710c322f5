#include "herd/program/tier_traffic.h"

#include <algorithm>
#include <string>
#include <utility>

#include "herd/program/passes.h"
#include "herd/program/program_names.h"

namespace herd::program {
namespace {

using Ranges = std::vector<std::pair<double, double>>;  // apart, in order

Ranges joined(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end());
  Ranges out;
  for (const auto& [begin, end] : ranges) {
    if (!out.empty() && begin <= out.back().second)
      out.back().second = std::max(out.back().second, end);
    else
      out.emplace_back(begin, end);
  }
  return out;
}

double length(const Ranges& ranges) {
  double sum = 0;
  for (const auto& [begin, end] : ranges) sum += end - begin;
  return sum;
}

double common_length(const Ranges& a, const Ranges& b) {
  double sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    ++(a[i].second < b[j].second ? i : j);
  }
  return sum;
}

// Returns when a lane of the rank runs ops, or ops of one kind.
Ranges times_of(const sim::Timeline& timeline, int rank, Lane lane, const OpKind* kind) {
  const std::string group = "rank " + std::to_string(rank);
  Ranges out;
  for (const sim::Span& span : timeline.spans) {
    const sim::Row& row = timeline.rows[static_cast<size_t>(span.row)];
    if (row.group != group || row.name != lane_name(lane)) continue;
    if (kind == nullptr || span.category == op_name(*kind)) out.emplace_back(span.start_us, span.end_us);
  }
  return joined(std::move(out));
}

}  // namespace

std::vector<TierTraffic> tier_traffic(const Program& step, const sim::Timeline& timeline) {
  struct Way {
    Lane lane;
    OpKind kind;
    std::string_view name;
  };
  constexpr Way kWays[] = {{Lane::kCopyOut, OpKind::kEvict, "device to host"},
                           {Lane::kCopyIn, OpKind::kFetch, "host to device"},
                           {Lane::kIo, OpKind::kEvict, "host to files"},
                           {Lane::kIo, OpKind::kFetch, "files to host"}};
  Ranges passes;  // read off where something moves: most steps that a search simulates have no copies
  std::vector<TierTraffic> out;
  for (const Way& way : kWays) {
    TierTraffic traffic{.way = way.name};
    for (const Op& op : step.ops) {
      if (op.lane != way.lane || op.kind != way.kind) continue;
      traffic.bytes += copied_bytes(step, op);
    }
    if (traffic.bytes == 0) continue;
    if (passes.empty()) passes = times_of(timeline, step.rank, Lane::kCompute, nullptr);
    const Ranges copies = times_of(timeline, step.rank, way.lane, &way.kind);
    traffic.busy_us = length(copies);
    traffic.hidden_us = common_length(copies, passes);
    out.push_back(traffic);
  }
  return out;
}

}  // namespace herd::program
