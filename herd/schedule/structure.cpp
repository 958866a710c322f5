#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "herd/base/error.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/message_layout.h"
#include "herd/schedule/schedule_names.h"
#include "herd/schedule/structure_internal.h"

namespace herd {
namespace {

bool is_message(StepKind kind) {
  return kind == StepKind::kSend || kind == StepKind::kReceive || kind == StepKind::kReceiveReduce;
}
bool is_flag(StepKind kind) { return kind == StepKind::kSignal || kind == StepKind::kWait; }
bool overlap(const Slice& a, const Slice& b) {
  return a.rank == b.rank && a.space == b.space && a.begin < b.end && b.begin < a.end;
}

std::string header_difference(const Schedule& a, const Schedule& b) {
  if (a.collective != b.collective) return "collective";
  if (a.num_ranks != b.num_ranks) return "num_ranks";
  if (a.root != b.root) return "root";
  if (a.elements != b.elements) return "elements";
  if (a.counts != b.counts) return "counts";
  if (a.dtype != b.dtype) return "dtype";
  if (a.accumulate != b.accumulate) return "accumulate";
  if (a.in_place != b.in_place) return "in_place";
  if (a.algorithm != b.algorithm) return "algorithm";
  return "";
}

// Returns the first rule that the step breaks, or an empty string.
std::string broken_shape(const Schedule& s, const Step& step) {
  const size_t sources = step.sources.size(), targets = step.targets.size();
  const bool peers = is_message(step.kind) || is_flag(step.kind);
  if (peers && (step.peer < 0 || step.peer >= s.num_ranks || step.peer == s.self)) {
    return "its peer must be another rank below " + std::to_string(s.num_ranks);
  }
  if (!peers && step.peer != -1) return "a local step has no peer";
  switch (step.kind) {
    case StepKind::kSend:
      if (sources < 1 || targets != 0) return "a send has a source and no target";
      break;
    case StepKind::kReceive:
      if (sources != 0 || targets < 1) return "a receive has a target and no source";
      break;
    case StepKind::kReceiveReduce:
      if (sources != 1 || targets != 1) return "receive_reduce has one source and one target";
      break;
    case StepKind::kCopy:
      if (sources != 1 || targets < 1) return "a copy has one source and at least one target";
      break;
    case StepKind::kReduce:
      if (sources < 1 || targets < 1) return "a reduce has at least one source and one target";
      break;
    case StepKind::kSignal:
    case StepKind::kWait:
      if (targets != 0) return "a signal or wait has no target";
  }
  const bool adds = step.kind == StepKind::kReduce || step.kind == StepKind::kReceiveReduce;
  if (adds && !is_reduction(s.collective)) return std::string(collective_name(s.collective)) + " adds nothing up";
  if (step.completes && !adds) return "only reduce and receive_reduce complete a value";
  return "";
}

std::string broken_slice(std::span<const Schedule> all, const Schedule& s, const Step& step, const Slice& slice,
                         bool written) {
  if (slice.rank < 0 || slice.rank >= s.num_ranks) return "has no such rank";
  if (slice.rank != s.self && slice.space == Space::kScratch) return "is another rank's private memory";
  if (slice.rank != s.self && is_message(step.kind)) return "is not this rank's, so no message can use it";
  const Schedule& owner = slice.space == Space::kStage ? all[static_cast<size_t>(slice.rank)] : s;
  const int64_t size = space_size(owner, slice.rank, slice.space);
  if (slice.begin < 0 || slice.end < slice.begin || slice.end > size) {
    return "is not within [0," + std::to_string(size) + ")";
  }
  if (written && slice.space == Space::kInput) return "is the caller's input, which is only read";
  return "";
}

std::string broken_slices(std::span<const Schedule> all, const Schedule& s, const Step& step) {
  for (const bool written : {false, true}) {
    for (const Slice& slice : written ? step.targets : step.sources) {
      if (const auto rule = broken_slice(all, s, step, slice, written); !rule.empty())
        return describe(slice) + " " + rule;
    }
  }
  if (is_flag(step.kind) || step.kind == StepKind::kSend || step.kind == StepKind::kReceive) return "";
  const int64_t size = step.sources[0].size();
  for (const auto& slices : {step.sources, step.targets}) {
    for (const Slice& slice : slices) {
      if (slice.size() != size) return describe(slice) + " is not as long as " + describe(step.sources[0]);
    }
  }
  for (size_t i = 0; i < step.targets.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (overlap(step.targets[i], step.targets[j])) return describe(step.targets[i]) + " is written twice";
    }
    for (const Slice& source : step.sources) {
      const bool same = source == step.targets[i] && step.kind != StepKind::kCopy;
      if (overlap(source, step.targets[i]) && !same) return describe(source) + " is read while it is written";
    }
  }
  return "";
}

enum class Traffic : uint8_t { kMessages, kSignals };
using Flow = std::tuple<Traffic, Rank, Rank>;  // what flows, from, to

// Holds the steps at the two ends of a flow, in order.
struct Ends {
  std::vector<int> out;  // sends or signals of `from`
  std::vector<int> in;   // receives or waits of `to`
};

std::map<Flow, Ends> flows_of(std::span<const Schedule> all) {
  std::map<Flow, Ends> flows;
  for (Rank rank = 0; rank < static_cast<Rank>(all.size()); ++rank) {
    for (int i = 0; i < static_cast<int>(all[rank].steps.size()); ++i) {
      const Step& step = all[rank].steps[i];
      const Traffic traffic = is_flag(step.kind) ? Traffic::kSignals : Traffic::kMessages;
      if (step.kind == StepKind::kSend || step.kind == StepKind::kSignal) {
        flows[{traffic, rank, step.peer}].out.push_back(i);
      } else if (is_message(step.kind) || is_flag(step.kind)) {
        flows[{traffic, step.peer, rank}].in.push_back(i);
      }
    }
  }
  return flows;
}

void check_matching(std::span<const Schedule> all, std::vector<Finding>& findings) {
  for (const auto& [flow, ends] : flows_of(all)) {
    const auto& [traffic, from, to] = flow;
    const bool signals = traffic == Traffic::kSignals;
    if (ends.out.size() != ends.in.size()) {
      findings.push_back({from, -1,
                          (signals ? "signals rank " : "sends to rank ") + std::to_string(to) + " " +
                              std::to_string(ends.out.size()) + " times, which " + (signals ? "waits " : "receives ") +
                              std::to_string(ends.in.size()) + " times"});
      continue;
    }
    for (size_t k = 0; k < ends.out.size() && !signals; ++k) {
      const int64_t sent = all[from].steps[ends.out[k]].sources[0].size();
      const int64_t taken = all[to].steps[ends.in[k]].targets[0].size();
      if (sent == taken) continue;
      findings.push_back({from, ends.out[k],
                          "sends " + std::to_string(sent) + " elements, but step " + std::to_string(ends.in[k]) +
                              " of rank " + std::to_string(to) + " receives " + std::to_string(taken)});
    }
  }
}

}  // namespace

std::vector<Finding> check_structure(std::span<const Schedule> all) {
  std::vector<Finding> findings;
  if (all.empty()) return {{-1, -1, "no schedules"}};
  for (Rank rank = 0; rank < static_cast<Rank>(all.size()); ++rank) {
    const Schedule& s = all[rank];
    if (s.self != rank) findings.push_back({rank, -1, "its schedule says self = " + std::to_string(s.self)});
    if (s.num_ranks != static_cast<int>(all.size())) {
      findings.push_back({rank, -1,
                          "its schedule says num_ranks = " + std::to_string(s.num_ranks) + ", but there are " +
                              std::to_string(all.size())});
    }
    if (has_root(s.collective) ? s.root < 0 || s.root >= s.num_ranks : s.root != -1) {
      findings.push_back({rank, -1, "its schedule says root = " + std::to_string(s.root)});
    }
    if (s.elements > std::numeric_limits<int64_t>::max() / 2) {
      findings.push_back({rank, -1, "its schedule has more than 2^62 elements"});
      continue;
    }
    if (s.elements < 0 || s.scratch_elements < 0 || s.stage_elements < 0) {
      findings.push_back({rank, -1, "its schedule has a negative size"});
    }
    try {
      check_counts(s);
    } catch (const Error& error) {
      findings.push_back({rank, -1, error.message()});
    }
    const std::string differs = header_difference(all[0], s);
    if (!differs.empty()) findings.push_back({rank, -1, differs + " differs from rank 0's"});
  }
  if (!findings.empty()) return findings;
  for (const Schedule& s : all) {
    for (int i = 0; i < static_cast<int>(s.steps.size()); ++i) {
      std::string rule = broken_shape(s, s.steps[i]);
      if (rule.empty()) rule = broken_slices(all, s, s.steps[i]);
      if (!rule.empty()) findings.push_back({s.self, i, describe(s.steps[i]) + ": " + rule});
    }
  }
  if (findings.empty()) check_matching(all, findings);
  return findings;
}

std::vector<std::vector<int>> match_steps(std::span<const Schedule> all) {
  std::vector<std::vector<int>> partners(all.size());
  for (size_t rank = 0; rank < all.size(); ++rank) partners[rank].assign(all[rank].steps.size(), -1);
  for (const auto& [flow, ends] : flows_of(all)) {
    for (size_t k = 0; k < ends.out.size(); ++k) {
      partners[std::get<1>(flow)][ends.out[k]] = ends.in[k];
      partners[std::get<2>(flow)][ends.in[k]] = ends.out[k];
    }
  }
  return partners;
}

}  // namespace herd
