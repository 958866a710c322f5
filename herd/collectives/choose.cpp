#include "herd/collectives/choose.h"

#include <algorithm>
#include <cstdio>

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
  CollectiveRequest half = request, whole = request;
  half.elements = most / 2;
  whole.elements = most;
  const double half_us = time_schedules(build_all(name, half), topology, options).end_us;
  ScheduleTimes times = time_schedules(build_all(name, whole), topology, options);
  const double per_element = (times.end_us - half_us) / static_cast<double>(most - most / 2);
  times.end_us += per_element * static_cast<double>(request.elements - most);
  return times;
}

double moved_bytes(const Step& step, DType dtype) {
  if (step.kind != StepKind::kCopy && step.kind != StepKind::kReduce) return 0;
  return static_cast<double>(static_cast<int64_t>(step.sources.size() + step.targets.size()) * step.sources[0].size() *
                             size_of(dtype));
}

// One rank's steps one after another, as if alone: latency per message, bytes at the slowest rate on their way.
double estimate_us(const Schedule& s, const Topology& topology) {
  const Host& host = topology.hosts[topology.host_of(s.self)];
  const double rate = std::min(host.core_bytes_per_us, host.memory_bytes_per_us / host.ranks);
  double us = 0;
  for (const Step& step : s.steps) {
    us += host.step_us + moved_bytes(step, s.dtype) / rate;
    if (step.peer < 0) continue;
    const bool near = topology.host_of(step.peer) == topology.host_of(s.self);
    if (step.kind == StepKind::kWait || step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce) {
      us += near ? host.signal_us : host.uplink.latency_us;
    }
    if (step.kind == StepKind::kSend) {
      const double bytes = static_cast<double>(step.sources[0].size() * size_of(s.dtype));
      us += bytes / (near ? host.core_bytes_per_us / 2 : host.uplink.bytes_per_us);
    }
  }
  return us;
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
  const auto count = [&candidate](const Schedule& s) {
    candidate.bytes_sent = std::max(candidate.bytes_sent, bytes_sent(s));
    candidate.messages = std::max(candidate.messages, num_messages(s));
  };
  if (n <= kMaxSimulatedRanks) {
    const ScheduleTimes times = simulate(candidate.algorithm.name, request, topology);
    candidate.us = times.end_us;
    candidate.busiest = busiest_of(times);
    for (const Schedule& s : build_all(candidate.algorithm.name, request)) count(s);
    return;
  }
  for (const Rank rank : {0, 1, request.root, n / 2, n - 1}) {
    CollectiveRequest own = request;
    own.self = rank;
    const Schedule s = build_schedule(candidate.algorithm.name, own);
    candidate.us = std::max(candidate.us, estimate_us(s, topology));
    count(s);
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
