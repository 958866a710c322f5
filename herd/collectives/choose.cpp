#include "herd/collectives/choose.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/schedule/cost.h"
#include "herd/schedule/traffic.h"

namespace herd {
namespace {

constexpr int64_t kMaxSimulatedBytes = 8 << 20;  // beyond, time grows as it does up to here

std::vector<Schedule> build_all(std::string_view name, CollectiveRequest request) {
  std::vector<Schedule> all;
  for (request.self = 0; request.self < request.num_ranks; ++request.self) all.push_back(build_schedule(name, request));
  return all;
}

// Time of a message that is too long to simulate step by step: the line through two shorter ones that use memory alike.
ScheduleTimes simulate(std::string_view name, const CollectiveRequest& request, const Topology& topology) {
  const CostOptions options{request.elements};
  const int64_t most = kMaxSimulatedBytes / size_of(request.dtype);
  if (request.elements <= most) return time_schedules(build_all(name, request), topology, options);
  const CollectiveRequest half = resized(request, most / 2), whole = resized(request, most);
  const double half_us = time_schedules(build_all(name, half), topology, options).end_us;
  ScheduleTimes times = time_schedules(build_all(name, whole), topology, options);
  const double per_element = (times.end_us - half_us) / static_cast<double>(most - most / 2);
  times.end_us += per_element * static_cast<double>(request.elements - most);
  return times;
}

Rank first_rank(const Topology& topology, int host) {
  Rank first = 0;
  for (int before = 0; before < host; ++before) first += topology.hosts[before].ranks;
  return first;
}

// Bytes that the rank's own core reads and writes for a step. A message within a host is copied into shared memory and
// out of it again; from another host it is copied out.
double moved_bytes(const Step& step, DType dtype, bool near) {
  int64_t slices = 0, elements = 0;
  switch (step.kind) {
    case StepKind::kCopy:
    case StepKind::kReduce:
      slices = static_cast<int64_t>(step.sources.size() + step.targets.size());
      elements = step.sources[0].size();
      break;
    case StepKind::kSend:
      slices = near ? 2 : 0;
      elements = step.sources[0].size();
      break;
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      slices = step.kind == StepKind::kReceive ? 2 : 3;
      elements = step.targets[0].size();
      break;
    case StepKind::kSignal:
    case StepKind::kWait:
      break;
  }
  return static_cast<double>(slices * elements * size_of(dtype));
}

// One rank's steps one after another, with its share of its host's cores and memory: latency per message, bytes at the
// slowest rate on their way.
double estimate_us(const Schedule& s, const Topology& topology) {
  const int own_host = topology.host_of(s.self);
  const Host& host = topology.hosts[own_host];
  const double rate = std::min(host.core_bytes_per_us * std::min(1.0, static_cast<double>(host.cores) / host.ranks),
                               host.memory_bytes_per_us / host.ranks);
  const Rank first = first_rank(topology, own_host);
  double us = 0;
  for (const Step& step : s.steps) {
    const bool near = step.peer < 0 || (step.peer >= first && step.peer < first + host.ranks);
    us += host.step_us + moved_bytes(step, s.dtype, near) / rate;
    if (step.kind == StepKind::kWait || step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce) {
      us += near ? host.signal_us : host.uplink.latency_us;
    }
    if (step.kind == StepKind::kSend && !near) {
      us += static_cast<double>(step.sources[0].size() * size_of(s.dtype)) / host.uplink.bytes_per_us;
    }
  }
  return us;
}

struct OwnSteps {
  double us = 0, bytes = 0, messages = 0;
};

OwnSteps own_steps(std::string_view name, const CollectiveRequest& own, int64_t elements, const Topology& topology) {
  const Schedule s = build_schedule(name, elements == own.elements ? own : resized(own, elements));
  return {estimate_us(s, topology), static_cast<double>(bytes_sent(s)), static_cast<double>(num_messages(s))};
}

std::string busiest_of(const ScheduleTimes& times) {
  if (times.resources.empty()) return "";
  const auto most = std::max_element(times.resources.begin(), times.resources.end(),
                                     [](const ResourceShare& a, const ResourceShare& b) { return a.busy < b.busy; });
  char share[16];
  std::snprintf(share, sizeof share, " %.0f %%", 100 * most->busy);
  return most->name + share;
}

void predict(Candidate& candidate, const CollectiveRequest& request, const Topology& topology) {
  const int n = request.num_ranks;
  if (n <= kMaxSimulatedRanks) {
    const ScheduleTimes times = simulate(candidate.algorithm.name, request, topology);
    candidate.us = times.end_us;
    candidate.busiest = busiest_of(times);
    for (const Schedule& s : build_all(candidate.algorithm.name, request)) {
      candidate.bytes_sent = std::max(candidate.bytes_sent, bytes_sent(s));
      candidate.messages = std::max(candidate.messages, num_messages(s));
    }
    return;
  }
  // Staged schedules have steps for every piece of a message: a long one is the line through two shorter ones, too.
  const int64_t most = kMaxSimulatedBytes / size_of(request.dtype);
  const bool grows = candidate.algorithm.needs == Needs::kStage && request.elements > most;
  std::set<Rank> ranks{0, 1, n / 2, n - 1};
  if (request.root >= 0 && request.root < n) ranks.insert(request.root);
  for (const Rank rank : ranks) {
    CollectiveRequest own = request;
    own.self = rank;
    const OwnSteps whole = own_steps(candidate.algorithm.name, own, grows ? most : request.elements, topology);
    OwnSteps cost = whole;
    if (grows) {
      const OwnSteps half = own_steps(candidate.algorithm.name, own, most / 2, topology);
      const double ratio = static_cast<double>(request.elements - most) / static_cast<double>(most - most / 2);
      cost.us += ratio * (whole.us - half.us);
      cost.bytes += ratio * (whole.bytes - half.bytes);
      cost.messages += ratio * (whole.messages - half.messages);
    }
    candidate.us = std::max(candidate.us, cost.us);
    candidate.bytes_sent = std::max<int64_t>(candidate.bytes_sent, std::llround(cost.bytes));
    candidate.messages = std::max(candidate.messages, static_cast<int>(std::lround(cost.messages)));
  }
}

std::string reason_of(const Choice& choice) {
  const Candidate& best = choice.candidates[0];
  const std::string text = std::string(best.algorithm.name) + ": " + format_us(best.us) + " predicted";
  for (size_t i = 1; i < choice.candidates.size(); ++i) {
    const Candidate& next = choice.candidates[i];
    if (!next.why_not.empty()) break;
    return text + ", " + std::string(next.algorithm.name) + " " + format_us(next.us) +
           (best.busiest.empty() ? "" : "; busiest: " + best.busiest);
  }
  return text + ", the only one that can serve this request";
}

}  // namespace

Choice choose(const CollectiveRequest& request, const Topology& topology) {
  check(topology);
  if (topology.num_ranks() != request.num_ranks) {
    throw Error(Code::kBadConfig, "topology \"" + topology.name + "\" has " + std::to_string(topology.num_ranks()) +
                                      " ranks, but the collective has " + std::to_string(request.num_ranks));
  }
  Choice choice;
  for (const AlgorithmInfo& info : algorithms(request.collective)) {
    Candidate candidate{info, why_not(info, request), 0, 0, 0, ""};
    if (candidate.why_not.empty()) predict(candidate, request, topology);
    choice.candidates.push_back(std::move(candidate));
  }
  std::stable_sort(choice.candidates.begin(), choice.candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.why_not.empty() != b.why_not.empty()) return a.why_not.empty();
    return a.us < b.us;
  });
  choice.algorithm = choice.candidates[0].algorithm.name;
  choice.reason = reason_of(choice);
  return choice;
}

}  // namespace herd
