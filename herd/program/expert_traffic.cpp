#include "herd/program/expert_traffic.h"

#include <map>
#include <string>

#include "herd/program/collective_message.h"
#include "herd/program/lane_times_internal.h"
#include "herd/program/program_names.h"

namespace herd::program {
namespace {

// Names of the spans of each op that moves rows or counts, as a simulation and a run write them.
std::map<std::string, ExpertWay> ways_of_spans(const Program& step) {
  std::map<std::string, ExpertWay> out;
  for (const Op& op : step.ops) {
    const auto way = expert_way(op);
    if (!way) continue;
    out[std::string(op_name(op.kind)) + " " + subject(step, op)] = *way;
    out[describe(step, op)] = *way;
  }
  return out;
}

// Returns the bytes that the rank sends: of a gather its own part to each other rank, of rows those of other ranks.
int64_t sent_bytes(const Program& step, const Op& op) {
  const int64_t ranks = step.mesh.size(op.axis);
  return message_bytes(step, op) * (ranks - 1) / ranks;
}

}  // namespace

std::optional<ExpertWay> expert_way(const Op& op) {
  if (gathers_routing(op)) return ExpertWay::kCounts;
  if (!moves_rows_of_experts(op)) return std::nullopt;
  const bool brings_back = op.reads[0].placement.is_shard(op.axis);
  if (op.reads[0].kind == ValueKind::kActivation) return brings_back ? ExpertWay::kOutputs : ExpertWay::kRows;
  return brings_back ? ExpertWay::kRowGradients : ExpertWay::kOutputGradients;
}

std::string_view way_name(ExpertWay way) {
  switch (way) {
    case ExpertWay::kCounts:
      return "counts of rows";
    case ExpertWay::kRows:
      return "rows to experts";
    case ExpertWay::kOutputs:
      return "outputs back";
    case ExpertWay::kOutputGradients:
      return "gradients of outputs to experts";
    case ExpertWay::kRowGradients:
      return "gradients of rows back";
  }
  return "";
}

std::vector<ExpertTraffic> expert_traffic(const Program& step, const sim::Timeline& timeline,
                                          const ExpertBytes* counted) {
  ExpertBytes bytes = {};
  for (const Op& op : step.ops) {
    if (const auto way = expert_way(op)) bytes[static_cast<size_t>(*way)] += sent_bytes(step, op);
  }
  std::vector<ExpertTraffic> out;
  if (bytes == ExpertBytes{}) return out;
  const std::map<std::string, ExpertWay> ways = ways_of_spans(step);
  const TimeRanges passes = times_of(timeline, step.rank, Lane::kCompute);
  for (int i = 0; i < kNumExpertWays; ++i) {
    const auto way = static_cast<ExpertWay>(i);
    if (bytes[static_cast<size_t>(i)] == 0) continue;
    const TimeRanges exchanges = times_of(timeline, step.rank, Lane::kActivations, [&](const sim::Span& span) {
      const auto found = ways.find(span.name);
      return found != ways.end() && found->second == way;
    });
    out.push_back({.way = way,
                   .bytes = (counted != nullptr ? *counted : bytes)[static_cast<size_t>(i)],
                   .busy_us = length(exchanges),
                   .hidden_us = common_length(exchanges, passes)});
  }
  return out;
}

}  // namespace herd::program
