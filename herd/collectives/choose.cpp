#include "herd/collectives/choose.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

#include "herd/base/error.h"
#include "herd/base/units.h"
#include "herd/collectives/staging.h"
#include "herd/schedule/cost.h"
#include "herd/schedule/traffic.h"

namespace herd {
namespace {

constexpr int64_t kMaxSimulatedBytes = 8 << 20;  // beyond, time is extrapolated

std::vector<Schedule> build_all(std::string_view name, CollectiveRequest request) {
  std::vector<Schedule> all;
  for (request.self = 0; request.self < request.num_ranks; ++request.self) all.push_back(build_schedule(name, request));
  return all;
}

// Returns the topology as long messages find it: uplinks have used up their bursts.
Topology without_bursts(Topology topology) {
  for (Host& host : topology.hosts) host.uplink.burst_bytes = host.uplink.burst_bytes_per_us = 0;
  return topology;
}

std::vector<int64_t> bytes_by_distance(const Schedule& s, const Topology& topology, const std::vector<int>& host_of) {
  std::vector<int64_t> bytes(static_cast<size_t>(num_distances(topology)), 0);
  const int own_host = host_of[static_cast<size_t>(s.self)];
  for (const Step& step : s.steps) {
    if (step.kind != StepKind::kSend) continue;
    const int peer_distance = distance(topology, own_host, host_of[static_cast<size_t>(step.peer)]);
    bytes[static_cast<size_t>(peer_distance)] += step.sources[0].size() * size_of(s.dtype);
  }
  int64_t sent = 0;
  for (const int64_t bytes_at_distance : bytes) sent += bytes_at_distance;
  bytes[0] += bytes_sent(s) - sent;  // the bytes that go through peers' memory
  return bytes;
}

void keep_max(std::vector<int64_t>& maxima, const std::vector<int64_t>& bytes) {
  maxima.resize(bytes.size(), 0);
  for (size_t i = 0; i < bytes.size(); ++i) maxima[i] = std::max(maxima[i], bytes[i]);
}

// Returns the bytes that the rank's own core reads and writes for a step; bytes in the memory of peers count more, by
// the host's factors. A message within a host is copied into shared memory and out of it again; a message from another
// host is copied out.
double moved_bytes(const Step& step, const Schedule& s, bool inside_host, const MemoryRates& rates) {
  const auto size = static_cast<double>(size_of(s.dtype));
  double elements = 0;
  switch (step.kind) {
    case StepKind::kCopy:
    case StepKind::kReduce:
      for (const Slice& source : step.sources) {
        const double peers = source.space == Space::kStage ? rates.stage_read : rates.peer_read;
        elements += static_cast<double>(source.size()) * (source.rank == s.self ? 1 : peers);
      }
      for (const Slice& target : step.targets) {
        const double peers = target.space == Space::kStage ? rates.stage_write : rates.peer_write;
        elements += static_cast<double>(target.size()) * (target.rank == s.self ? 1 : peers);
      }
      break;
    case StepKind::kSend:
      elements = inside_host ? (1 + rates.message) * static_cast<double>(step.sources[0].size()) : 0;
      break;
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      elements = (step.kind == StepKind::kReceive ? 1 : 2) + (inside_host ? rates.message : 1);
      elements *= static_cast<double>(step.targets[0].size());
      break;
    case StepKind::kSignal:
    case StepKind::kWait:
      break;
  }
  return elements * size;
}

// Counts what a step costs its rank's thread, in steps: a message costs two for each of its pieces, as time_schedules()
// counts them.
int num_thread_steps(const Step& step, DType dtype, bool inside_host, const Link& uplink) {
  if (step.kind != StepKind::kSend && step.kind != StepKind::kReceive && step.kind != StepKind::kReceiveReduce)
    return 1;
  const Slice& slice = step.kind == StepKind::kSend ? step.sources[0] : step.targets[0];
  return 2 * num_message_pieces(static_cast<double>(slice.size() * size_of(dtype)), inside_host, uplink);
}

// Returns how long a rank waits for its core after a wait for peers: half of the core's other ranks run first.
double turns_us(const Host& host) {
  return host.ranks > host.cores ? host.turn_us * (host.ranks - host.cores) / (2 * host.cores) : 0;
}

double latency_us(const Topology& topology, int from, int to) {
  const Host& host = topology.hosts[static_cast<size_t>(to)];
  if (from == to) return host.signal_us;
  if (topology.fabric != Fabric::kSwitch) {
    return host.uplink.latency_us * static_cast<double>(route(topology, from, to).size());
  }
  double us = host.uplink.latency_us;
  for (int tier = 0; tier + 1 < distance(topology, from, to); ++tier) {
    us += topology.tiers[static_cast<size_t>(tier)].uplink.latency_us;
  }
  return us;
}

// Holds what the steps of one rank take: time of its thread, and time in which it waits for a message to arrive.
struct RankTime {
  double work_us = 0, latency_us = 0;
};

// Adds up one rank's steps at its share of its host's cores and memory: a latency per message, and bytes at the rate
// of its memory. way_out_us() gives the time of the links out of its host, which carry while its thread works.
RankTime estimate_us(const Schedule& s, const Topology& topology, const std::vector<int>& host_of,
                     int64_t message_elements) {
  const int own_host = host_of[static_cast<size_t>(s.self)];
  const Host& host = topology.hosts[static_cast<size_t>(own_host)];
  const MemoryRates rates = memory_rates(host, message_elements, s.dtype, s.in_place);
  const double rate =
      std::min(rates.core * std::min(1.0, static_cast<double>(host.cores) / host.ranks), rates.bus / host.ranks);
  RankTime time;
  time.latency_us = 4 * turns_us(host);  // until all ranks had a turn, and the last one waited for all others again
  bool waited = false;
  for (const Step& step : s.steps) {
    const int peer_host = step.peer < 0 ? own_host : host_of[static_cast<size_t>(step.peer)];
    time.work_us += num_thread_steps(step, s.dtype, peer_host == own_host, host.uplink) * host.step_us +
                    moved_bytes(step, s, peer_host == own_host, rates) / rate;
    const bool receives = step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce;
    const bool waits = receives || step.kind == StepKind::kWait;
    if (waits) time.latency_us += latency_us(topology, peer_host, own_host);
    if (waits && !waited) time.latency_us += turns_us(host);  // once for several peers
    if (peer_host == own_host && (receives || step.kind == StepKind::kSend)) time.work_us += host.message_us / 2;
    waited = waits;
    // The latency includes the message_us of the receiver.
    if (peer_host != own_host && step.kind == StepKind::kSend) time.work_us += host.uplink.message_us;
    if (step.kind == StepKind::kSend && topology.fabric != Fabric::kSwitch) {
      const auto hops = static_cast<double>(route(topology, own_host, peer_host).size());
      time.latency_us += hops * host.uplink.carry_us(static_cast<double>(step.sources[0].size() * size_of(s.dtype)));
    }
  }
  return time;
}

// Returns the time until all bytes that leave this rank's host have passed its uplink, the tiers and the spine. Every
// host is taken to send as many.
double way_out_us(std::string_view name, const CollectiveRequest& own, const Topology& topology,
                  const std::vector<int>& host_of) {
  if (topology.fabric != Fabric::kSwitch || topology.hosts.size() < 2) return 0;
  const int host = host_of[static_cast<size_t>(own.self)];
  std::vector<double> out(static_cast<size_t>(num_distances(topology)), 0);
  for (Rank rank = 0; rank < own.num_ranks; ++rank) {
    if (host_of[static_cast<size_t>(rank)] != host) continue;
    CollectiveRequest peer_request = own;
    peer_request.self = rank;
    const std::vector<int64_t> bytes = bytes_by_distance(build_schedule(name, peer_request), topology, host_of);
    for (size_t d = 0; d < bytes.size(); ++d) out[d] += static_cast<double>(bytes[d]);
  }
  double bytes_beyond = 0, hosts = 1;
  for (size_t d = 1; d < out.size(); ++d) bytes_beyond += out[d];
  double us = topology.hosts[static_cast<size_t>(host)].uplink.carry_us(bytes_beyond);
  for (size_t tier = 0; tier < topology.tiers.size(); ++tier) {
    bytes_beyond -= out[tier + 1];
    hosts *= topology.tiers[tier].size;
    us = std::max(us, bytes_beyond * hosts / topology.tiers[tier].uplink.bytes_per_us);
  }
  const auto all_hosts = static_cast<double>(topology.hosts.size());
  return topology.spine_bytes_per_us > 0 ? std::max(us, bytes_beyond * all_hosts / topology.spine_bytes_per_us) : us;
}

// Holds the costs of one rank, or the largest of several ranks.
struct Costs {
  double us = 0, bytes = 0, messages = 0;
  double rounds = 0;  // messages and signals that it waits for
  std::vector<int64_t> by_distance = {};
};

// Holds two shorter messages that use memory as a long one does. The long one exceeds `whole` by `ratio` times the
// difference of the two.
struct Extrapolation {
  CollectiveRequest half, whole;
  double ratio = 0;
};

Extrapolation extrapolation_to(const CollectiveRequest& request, int64_t elements) {
  Extrapolation shorter{resized(request, elements / 2), resized(request, elements)};
  shorter.ratio = static_cast<double>(request.elements - shorter.whole.elements) /
                  static_cast<double>(shorter.whole.elements - shorter.half.elements);
  return shorter;
}

Costs extrapolate(double ratio, Costs whole, const Costs& half) {
  whole.us += ratio * (whole.us - half.us);
  whole.bytes += ratio * (whole.bytes - half.bytes);
  whole.messages += ratio * (whole.messages - half.messages);
  whole.rounds += ratio * (whole.rounds - half.rounds);
  for (size_t d = 0; d < whole.by_distance.size(); ++d) {
    whole.by_distance[d] += std::llround(ratio * static_cast<double>(whole.by_distance[d] - half.by_distance[d]));
  }
  return whole;
}

Costs own_costs(const AlgorithmInfo& algorithm, const CollectiveRequest& own, const Topology& topology,
                const std::vector<int>& host_of, int64_t message_elements) {
  const Schedule s = build_schedule(algorithm.name, own);
  const RankTime own_time = estimate_us(s, topology, host_of, message_elements);
  const double links_us = way_out_us(algorithm.name, own, topology, host_of);
  double call_us = 0;
  for (const Host& host : topology.hosts) call_us = std::max(call_us, host.call_us);
  Costs costs{call_us + std::max(own_time.work_us, links_us) + own_time.latency_us, static_cast<double>(bytes_sent(s)),
              static_cast<double>(num_messages_and_signals(s)), 0, bytes_by_distance(s, topology, host_of)};
  for (const Step& step : s.steps) {
    costs.rounds +=
        step.kind == StepKind::kWait || step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce;
  }
  if (algorithm.depth != nullptr) {  // the message passes other ranks before and after this one
    const int depth = algorithm.depth(own.num_ranks);
    const Host& host = topology.hosts[static_cast<size_t>(host_of[static_cast<size_t>(own.self)])];
    const double hop_us = topology.hosts.size() > 1 ? host.uplink.latency_us : host.signal_us + turns_us(host);
    costs.us += std::max(0, depth - 1) * hop_us;
    costs.rounds = std::max<double>(costs.rounds, depth);
  }
  return costs;
}

std::string busiest_of(const ScheduleTimes& times) {
  if (times.resources.empty()) return "";
  const auto busiest = std::max_element(times.resources.begin(), times.resources.end(),
                                        [](const ResourceShare& a, const ResourceShare& b) { return a.busy < b.busy; });
  char share[16];
  std::snprintf(share, sizeof share, " %.0f %%", 100 * busiest->busy);
  return busiest->name + share;
}

Costs counts_of(const std::vector<Schedule>& all, const Topology& topology, const ChooseOptions& options) {
  const std::vector<int> host_of = topology.host_of_ranks();
  Costs costs;
  if (options.count_rounds) costs.rounds = num_rounds(all);
  for (const Schedule& s : all) {
    costs.bytes = std::max(costs.bytes, static_cast<double>(bytes_sent(s)));
    costs.messages = std::max(costs.messages, static_cast<double>(num_messages_and_signals(s)));
    keep_max(costs.by_distance, bytes_by_distance(s, topology, host_of));
  }
  return costs;
}

void keep_max(Candidate& candidate, const Costs& costs) {
  const auto count = [](double value) { return static_cast<int>(std::min<double>(std::round(value), INT_MAX)); };
  candidate.us = std::max(candidate.us, costs.us);
  candidate.bytes_sent = std::max<int64_t>(candidate.bytes_sent, std::llround(costs.bytes));
  candidate.messages = std::max(candidate.messages, count(costs.messages));
  candidate.rounds = std::max(candidate.rounds, count(costs.rounds));
  keep_max(candidate.bytes_by_distance, costs.by_distance);
}

// Simulates all ranks step by step. The time of a long message is extrapolated from two shorter ones. So are the counts
// of staged algorithms, from the size at which pieces no longer grow: steps for every piece are too many to build.
void simulate_all_ranks(Candidate& candidate, const CollectiveRequest& request, const Topology& topology,
                        const ChooseOptions& options) {
  const std::string_view name = candidate.algorithm.name;
  const auto simulate = [&](const std::vector<Schedule>& all, const Topology& machines) {
    const ScheduleTimes times = time_schedules(all, machines, {.whole_message_elements = request.elements});
    candidate.busiest = busiest_of(times);
    return times.end_us;
  };
  const int64_t max_elements = kMaxSimulatedBytes / size_of(request.dtype);
  if (request.elements <= max_elements) {
    const std::vector<Schedule> all = build_all(name, request);
    Costs costs = counts_of(all, topology, options);
    costs.us = simulate(all, topology);
    return keep_max(candidate, costs);
  }
  const Topology steady = without_bursts(topology);
  const Extrapolation shorter = extrapolation_to(request, max_elements);
  const double half_us = simulate(build_all(name, shorter.half), steady);
  const double whole_us = simulate(build_all(name, shorter.whole), steady);
  const int64_t capped_elements = 2 * request.num_ranks * kWantedPieces * kMaxPieceBytes / size_of(request.dtype);
  const auto counts = [&](const CollectiveRequest& r) { return counts_of(build_all(name, r), topology, options); };
  Costs costs;
  if (candidate.algorithm.needs == Needs::kStage && request.elements > capped_elements) {
    const Extrapolation pieces = extrapolation_to(request, capped_elements);
    costs = extrapolate(pieces.ratio, counts(pieces.whole), counts(pieces.half));
  } else {
    costs = counts(request);
  }
  costs.us = whole_us + shorter.ratio * (whole_us - half_us);
  keep_max(candidate, costs);
}

// Predicts by simulation, or from a few ranks where all of them would take too long to simulate.
void predict(Candidate& candidate, const CollectiveRequest& request, const Topology& topology,
             const ChooseOptions& options) {
  const int n = request.num_ranks;
  if (n <= kMaxSimulatedRanks) return simulate_all_ranks(candidate, request, topology, options);
  const std::vector<int> host_of = topology.host_of_ranks();
  const int64_t max_elements = kMaxSimulatedBytes / size_of(request.dtype);
  const bool extrapolates = candidate.algorithm.needs == Needs::kStage && request.elements > max_elements;
  const Topology steady = extrapolates ? without_bursts(topology) : Topology();
  std::set<Rank> ranks{0, 1, n / 2, n - 1};
  if (request.root >= 0 && request.root < n) ranks.insert(request.root);
  for (const Rank rank : ranks) {
    CollectiveRequest own = request;
    own.self = rank;
    if (!extrapolates) {
      keep_max(candidate, own_costs(candidate.algorithm, own, topology, host_of, request.elements));
      continue;
    }
    const Extrapolation shorter = extrapolation_to(own, max_elements);
    keep_max(candidate, extrapolate(shorter.ratio,
                                    own_costs(candidate.algorithm, shorter.whole, steady, host_of, request.elements),
                                    own_costs(candidate.algorithm, shorter.half, steady, host_of, request.elements)));
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

void apply(const Tuning& tuning, const CollectiveRequest& request, Choice& choice) {
  const std::optional<TunedSize> measured = find_tuned(tuning, request);
  if (!measured) return;
  for (const Candidate& candidate : choice.candidates) {
    if (candidate.algorithm.name != measured->algorithm) continue;
    if (!why_not(candidate.algorithm, request).empty()) return;
    choice.algorithm = measured->algorithm;
    choice.reason = measured->algorithm + ": " + format_us(measured->us) + " measured at " +
                    format_bytes(static_cast<double>(measured->bytes)) + ", which overrides the model";
    return;
  }
}

void check_ranks(const CollectiveRequest& request, const Topology& topology) {
  check(topology);
  if (topology.num_ranks() == request.num_ranks) return;
  throw Error(Code::kBadConfig, "topology \"" + topology.name + "\" has " + std::to_string(topology.num_ranks()) +
                                    " ranks, but the collective has " + std::to_string(request.num_ranks));
}

}  // namespace

double predict_us(std::string_view algorithm, const CollectiveRequest& unplaced, const Topology& topology) {
  check_ranks(unplaced, topology);
  const CollectiveRequest request = placed_on(unplaced, topology);
  for (const AlgorithmInfo& info : algorithms(request.collective)) {
    if (info.name != algorithm) continue;
    Candidate candidate{info, why_not(info, request)};
    if (!candidate.why_not.empty()) break;
    predict(candidate, request, topology, {});
    return candidate.us;
  }
  build_schedule(algorithm, request);  // throws with the reason
  return 0;
}

CollectiveRequest placed_on(CollectiveRequest request, const Topology& topology) {
  request.same_host = request.same_host && topology.hosts.size() == 1;
  request.hosts.clear();
  request.grid.clear();
  if (topology.hosts.size() == 1) return request;
  request.hosts = topology.host_of_ranks();
  request.grid = grid_of(topology);
  return request;
}

Choice choose(const CollectiveRequest& unplaced, const Topology& topology, ChooseOptions options) {
  check_ranks(unplaced, topology);
  const CollectiveRequest request = placed_on(unplaced, topology);
  Choice choice;
  bool has_sending_candidate = false;
  for (const AlgorithmInfo& info : algorithms(request.collective)) {
    Candidate candidate{info, why_not(info, request)};
    const bool sends_messages = info.needs == Needs::kMessages;
    const bool left_out = request.same_host && sends_messages && std::exchange(has_sending_candidate, true);
    if (left_out && candidate.why_not.empty()) candidate.why_not = "inside a host its memory serves better";
    if (candidate.why_not.empty() || (left_out && options.time_all && why_not(info, request).empty())) {
      CollectiveRequest own = request;
      if (!info.has_segments) own.segment_bytes = 0;
      if (options.report) options.report(info.name);
      predict(candidate, own, topology, options);
    }
    choice.candidates.push_back(std::move(candidate));
  }
  std::stable_sort(choice.candidates.begin(), choice.candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.why_not.empty() != b.why_not.empty()) return a.why_not.empty();
    return a.us < b.us;
  });
  choice.algorithm = choice.candidates[0].algorithm.name;
  choice.reason = reason_of(choice);
  if (options.tuning != nullptr) apply(*options.tuning, request, choice);
  return choice;
}

}  // namespace herd
