#include "herd/schedule/cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "herd/base/check.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/step_dependencies.h"
#include "herd/schedule/structure_internal.h"

namespace herd {
namespace {

constexpr int64_t kMessagePieceBytes = 64 << 10;
constexpr int kRepetitions = 8;  // runs at most, until the bursts that links have saved up no longer change
constexpr int kMaxMessagePieces = 16;
constexpr int kMaxFarPieces = 8;  // pieces of a message between hosts whose cores limit the link

bool fits_cache(const Host& host, int64_t message_elements, DType dtype, bool in_place) {
  const double touched =
      static_cast<double>(message_elements) * static_cast<double>(size_of(dtype)) * host.ranks * (in_place ? 1 : 2);
  return touched <= static_cast<double>(host.cache_bytes);
}

// Simulates the steps of all ranks on the cores, memory and links of the topology.
class ScheduleSimulation {
 public:
  ScheduleSimulation(std::span<const Schedule> all, const Topology& topology, CostOptions options)
      : schedules_(all), topology_(topology), matching_step_(match_steps(all)) {
    const int n = static_cast<int>(all.size());
    const std::vector<int> hosts = topology.host_of_ranks();
    host_of_.assign(hosts.begin(), hosts.begin() + n);
    const int64_t footprint = options.whole_message_elements > 0 ? options.whole_message_elements : all[0].elements;
    if (all[0].elements > 0) scale_ = static_cast<double>(footprint) / static_cast<double>(all[0].elements);
    for (size_t h = 0; h < topology.hosts.size(); ++h) add_host(static_cast<int>(h), footprint);
    add_cores();
    for (Rank rank = 0; rank < n; ++rank)
      threads_.push_back(engine_.add_resource("thread of rank " + std::to_string(rank), 1));
    add_tiers();
    if (topology.spine_bytes_per_us > 0) spine_ = add_shared("spine", topology.spine_bytes_per_us);
    tasks_.resize(n);
    collect_peer_reads();
  }

  ScheduleTimes run() {
    for (Rank rank = 0; rank < static_cast<Rank>(schedules_.size()); ++rank) add_steps(rank);
    for (auto& [task, after] : waits_for_peer_) {
      tasks_to_add_[task].after.push_back(id_of(after));
      tasks_to_add_[task].latency_from = id_of(after);
    }
    for (sim::Task& task : tasks_to_add_) engine_.add_task(std::move(task));
    double call_us = 0;
    for (const Host& host : topology_.hosts) call_us = std::max(call_us, host.call_us);
    const sim::Outcome outcome = run_repeatedly(call_us);
    ScheduleTimes times;
    times.end_us = outcome.end_us + call_us;
    for (const auto& steps : tasks_) {
      auto& rows = times.steps.emplace_back();
      for (const std::vector<int>& pieces : steps) {
        rows.push_back({outcome.tasks[pieces.front()].start_us, outcome.tasks[pieces.back()].end_us});
      }
    }
    for (const int resource : shared_)
      times.resources.push_back({engine_.resource_name(resource), outcome.busy_share[resource]});
    return times;
  }

 private:
  // Names a piece of the message that a step moves.
  struct Piece {
    Rank rank;
    int step, piece;
  };

  // Adds the cores of hosts that have fewer cores than ranks; neighbouring ranks share a core.
  void add_cores() {
    core_of_.assign(schedules_.size(), -1);
    std::vector<int> seen(topology_.hosts.size(), 0);
    std::vector<std::vector<int>> cores(topology_.hosts.size());
    for (Rank rank = 0; rank < static_cast<Rank>(schedules_.size()); ++rank) {
      const int h = host_of_[rank];
      const Host& host = topology_.hosts[h];
      if (host.ranks <= host.cores) continue;
      const auto core = static_cast<size_t>(seen[h]++ * host.cores / host.ranks);
      if (core == cores[h].size()) cores[h].push_back(engine_.add_core(host.turn_us));
      core_of_[rank] = cores[h][core];
    }
  }

  // Runs the operation as one of many, between which as much time passes as in each. The first run has no bursts saved
  // up; the next ones have what the previous run and the pause leave, until that changes by 1 % at most.
  sim::Outcome run_repeatedly(double call_us) const {
    sim::Outcome outcome = engine_.run();
    std::vector<double> begins(outcome.bucket_units.size(), 0);
    for (int i = 1; !bursts_.empty() && i < kRepetitions; ++i) {
      const double idle_us = call_us + outcome.end_us + call_us;
      bool steady = true;
      for (const auto& [resource, link] : bursts_) {
        double& saved_bytes = begins[static_cast<size_t>(resource)];
        const double left_bytes = outcome.bucket_units[static_cast<size_t>(resource)];
        const double next = std::min(link.burst_bytes, left_bytes + link.bytes_per_us * idle_us);
        steady = steady && std::abs(next - saved_bytes) <= link.burst_bytes / 100;
        // With fewer bytes saved up an operation takes longer, and then more are saved up: half of the way converges.
        saved_bytes = (saved_bytes + next) / 2;
      }
      if (steady) break;
      outcome = engine_.run(begins);
    }
    return outcome;
  }

  void add_host(int h, int64_t footprint) {
    const Host& host = topology_.hosts[h];
    const bool cached = fits_cache(host, footprint, schedules_[0].dtype, schedules_[0].in_place);
    rates_.push_back(memory_rates(host, footprint, schedules_[0].dtype, schedules_[0].in_place));
    const std::string name = topology_.hosts.size() > 1 ? " of host " + std::to_string(h) : "";
    cores_.push_back(add_shared("cores" + name, host.cores));
    buses_.push_back(add_shared((cached ? "cache" : "memory") + name, rates_.back().bus));
    if (topology_.fabric != Fabric::kSwitch) {
      for (size_t axis = 0; axis < topology_.axes.size(); ++axis) {
        for (const char* way : {"+", "-"}) {
          links_.push_back(add_uplink("link" + name + " axis " + std::to_string(axis) + way, host.uplink));
        }
      }
    } else if (topology_.hosts.size() > 1) {
      up_.push_back(add_uplink("uplink out" + name, host.uplink));
      down_.push_back(add_uplink("uplink in" + name, host.uplink));
    }
  }

  // Notes what ranks read in the memory of their peers in a collective in place, since its owner stores to it later.
  void collect_peer_reads() {
    read_by_peers_.resize(schedules_.size());
    if (!schedules_[0].in_place) return;
    for (Rank rank = 0; rank < static_cast<Rank>(schedules_.size()); ++rank) {
      for (const Step& step : schedules_[rank].steps) {
        for (const Slice& source : step.sources) {
          if (source.rank == rank || source.space == Space::kStage) continue;
          read_by_peers_[source.rank].push_back({source.begin, source.end});
        }
      }
    }
    for (std::vector<Range>& reads : read_by_peers_) reads = merged(std::move(reads));
  }

  static std::vector<Range> merged(std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<Range> out;
    for (const Range& range : ranges) {
      if (!out.empty() && range.begin <= out.back().end) {
        out.back().end = std::max(out.back().end, range.end);
      } else {
        out.push_back(range);
      }
    }
    return out;
  }

  void add_tiers() {
    int group = 1;
    for (const Tier& tier : topology_.tiers) {
      group *= tier.size;
      std::vector<int>& up = tier_up_.emplace_back();
      std::vector<int>& down = tier_down_.emplace_back();
      for (size_t first = 0; first < topology_.hosts.size(); first += static_cast<size_t>(group)) {
        const std::string name =
            " of hosts " + std::to_string(first) + " to " + std::to_string(first + static_cast<size_t>(group) - 1);
        up.push_back(add_shared("way up" + name, tier.uplink.bytes_per_us));
        down.push_back(add_shared("way down" + name, tier.uplink.bytes_per_us));
      }
    }
  }

  // Returns the resources that a message between hosts uses, all at once.
  std::vector<int> resources_between(int from, int to) const {
    std::vector<int> passed;
    if (topology_.fabric != Fabric::kSwitch) {
      const auto axes = static_cast<int>(topology_.axes.size());
      for (const Hop& hop : route(topology_, from, to)) {
        passed.push_back(links_[static_cast<size_t>((hop.host * axes + hop.axis) * 2 + (hop.direction < 0))]);
      }
      return passed;
    }
    passed = {up_[from], down_[to]};
    int group = 1;
    for (size_t tier = 0; tier < topology_.tiers.size(); ++tier) {
      group *= topology_.tiers[tier].size;
      if (from / group == to / group) return passed;
      passed.push_back(tier_up_[tier][from / group]);
      passed.push_back(tier_down_[tier][to / group]);
    }
    if (spine_ >= 0) passed.push_back(spine_);
    return passed;
  }

  double latency_between(int from, int to) const {
    const double once = topology_.hosts[to].uplink.latency_us;
    if (topology_.fabric != Fabric::kSwitch) return once * static_cast<double>(route(topology_, from, to).size());
    double latency = once;
    for (int tier = 0; tier < distance(topology_, from, to) - 1; ++tier) {
      latency += topology_.tiers[static_cast<size_t>(tier)].uplink.latency_us;
    }
    return latency;
  }

  int add_shared(const std::string& name, double capacity) {
    shared_.push_back(engine_.add_resource(name, capacity));
    return shared_.back();
  }

  int add_uplink(const std::string& name, const Link& link) {
    shared_.push_back(engine_.add_resource(name, link.bytes_per_us, {link.burst_bytes, link.burst_bytes_per_us}));
    if (link.burst_bytes > 0) bursts_.push_back({shared_.back(), link});
    return shared_.back();
  }

  int id_of(const Piece& p) const {
    const auto& pieces = tasks_[p.rank][p.step];
    return pieces[std::min<size_t>(p.piece, pieces.size() - 1)];
  }

  double bytes(const Slice& slice) const { return static_cast<double>(slice.size() * size_of(schedules_[0].dtype)); }

  // Returns the task in which a rank's thread moves so many bytes; a message's header costs as much as another step.
  sim::Task cpu_task(Rank rank, double moved, double steps = 1, double extra_us = 0) const {
    const int h = host_of_[rank];
    const double work = steps * topology_.hosts[h].step_us + moved / rates_[h].core + extra_us;
    sim::Task task;
    task.work_us = work;
    task.uses = {{threads_[rank], 1}, {cores_[h], 1}};
    task.core = core_of_[rank];
    task.user = rank;
    if (moved > 0) task.uses.push_back({buses_[h], moved / work});
    return task;
  }

  // Returns the bytes that a step moves; bytes in the memory of peers count more, by the host's factors.
  double moved_by(const Step& step, Rank rank) const {
    double moved = 0;
    const MemoryRates& rates = rates_[host_of_[rank]];
    for (const Slice& source : step.sources) {
      const double peers = source.space == Space::kStage ? rates.stage_read : rates.peer_read;
      moved += bytes(source) * (source.rank == rank ? 1 : peers);
    }
    for (const Slice& target : step.targets) {
      moved += bytes(target) * (target.space == Space::kStage ? rates.stage_write : write_factor(step, target, rank));
    }
    return moved;
  }

  // Returns how many times a store to the target costs one to private memory.
  double write_factor(const Step& step, const Slice& target, Rank rank) const {
    const MemoryRates& rates = rates_[host_of_[rank]];
    if (reads(step, target)) return 1;
    if (target.rank != rank) return rates.peer_write;
    return peers_read(target) ? rates.shared_write : 1;
  }

  // Says whether the step has the cache lines of this target already, since it reads the same memory.
  bool reads(const Step& step, const Slice& target) const {
    return std::any_of(step.sources.begin(), step.sources.end(), [&](const Slice& source) {
      const bool same_memory =
          source.space == target.space || (schedules_[0].in_place && source.space == Space::kInput);
      return source.rank == target.rank && same_memory && source.begin == target.begin;
    });
  }

  // Says whether peers hold cache lines of this memory because their steps read it.
  bool peers_read(const Slice& target) const {
    if (target.space != Space::kOutput) return false;
    const std::vector<Range>& reads = read_by_peers_[target.rank];
    const auto first =
        std::partition_point(reads.begin(), reads.end(), [&](const Range& read) { return read.end <= target.begin; });
    return first != reads.end() && first->begin < target.end;
  }

  int pieces_of(double message, int from, int to) const {
    return num_message_pieces(message, from == to, topology_.hosts[from].uplink);
  }

  // Returns for how many pieces of the whole operation each piece of a message stands. The schedules may carry only a
  // part of the operation, in which a message has fewer pieces.
  double weight_of_piece(double message, int from, int to) const {
    return static_cast<double>(pieces_of(scale_ * message, from, to)) / pieces_of(message, from, to);
  }

  void add_steps(Rank rank) {
    const Schedule& s = schedules_[rank];
    const auto dependencies = derive_dependencies(s);
    int first_turn = -1;  // task of the rank's first turn on a shared core; -1 = it has a core of its own
    if (core_of_[rank] >= 0) {
      first_turn = static_cast<int>(tasks_to_add_.size());
      tasks_to_add_.push_back(cpu_task(rank, 0));
    }
    for (int i = 0; i < static_cast<int>(s.steps.size()); ++i) {
      std::vector<sim::Task> pieces = tasks_of(rank, i);
      const int lane = lanes_.try_emplace({rank, lane_of(s.steps[i])}, static_cast<int>(lanes_.size())).first->second;
      std::vector<int>& ids = tasks_[rank].emplace_back();
      for (sim::Task& piece : pieces) {
        piece.lane = lane;
        if (ids.empty()) {
          for (const int earlier : dependencies[i]) piece.after.push_back(tasks_[rank][earlier].back());
          if (first_turn >= 0) piece.after.push_back(first_turn);
        }
        ids.push_back(static_cast<int>(tasks_to_add_.size()));
        tasks_to_add_.push_back(std::move(piece));
      }
      const StepKind kind = s.steps[i].kind;
      if (kind == StepKind::kSend || kind == StepKind::kSignal || matching_step_[rank][i] < 0) continue;
      for (int k = 0; k < static_cast<int>(ids.size()); ++k) {
        waits_for_peer_.push_back({ids[k], {s.steps[i].peer, matching_step_[rank][i], k}});
      }
    }
  }

  std::vector<sim::Task> tasks_of(Rank rank, int index) const {
    const Step& step = schedules_[rank].steps[index];
    const Host& host = topology_.hosts[host_of_[rank]];
    switch (step.kind) {
      case StepKind::kCopy:
      case StepKind::kReduce:
        return {cpu_task(rank, moved_by(step, rank))};
      case StepKind::kSignal:
        return {cpu_task(rank, 0)};
      case StepKind::kWait: {
        sim::Task task = cpu_task(rank, 0);
        task.latency_us = host.signal_us;
        return {task};
      }
      case StepKind::kSend:
        return send_tasks(rank, step);
      case StepKind::kReceive:
      case StepKind::kReceiveReduce:
        break;
    }
    const int from = host_of_[step.peer], to = host_of_[rank];
    const double message = bytes(step.targets[0]), own = step.kind == StepKind::kReceive ? 1 : 2;
    const int count = pieces_of(message, from, to);
    const double steps = 2 * weight_of_piece(message, from, to);
    if (from != to) return far_receive_tasks(rank, message / count, own, count, steps, latency_between(from, to));
    std::vector<sim::Task> tasks(count, cpu_task(rank, (own + rates_[to].message) * message / count, steps));
    tasks[0] = cpu_task(rank, (own + rates_[to].message) * message / count, steps, host.message_us / 2);
    tasks[0].latency_us = host.signal_us;
    return tasks;
  }

  // Returns the tasks of the rank's core for a message from another host. core_bytes_per_us as measured includes the
  // copy out of the network's memory.
  std::vector<sim::Task> far_receive_tasks(Rank rank, double piece, double own, int count, double steps,
                                           double latency_us) const {
    const Link& link = topology_.hosts[host_of_[rank]].uplink;
    const double core = link.core_bytes_per_us;
    const double moved = core > 0 ? (own - 1) * piece : (own + 1) * piece, core_us = core > 0 ? piece / core : 0;
    std::vector<sim::Task> tasks(count, cpu_task(rank, moved, steps, core_us));
    tasks[0] = cpu_task(rank, moved, steps, core_us + link.message_us);
    for (sim::Task& task : tasks) task.latency_us = std::max(0.0, latency_us - link.message_us);
    return tasks;
  }

  std::vector<sim::Task> send_tasks(Rank rank, const Step& step) const {
    const int from = host_of_[rank], to = host_of_[step.peer];
    const double message = bytes(step.sources[0]);
    const int count = pieces_of(message, from, to);
    const double weight = weight_of_piece(message, from, to);
    if (from == to) {
      const double moved = (1 + rates_[from].message) * message / count;
      std::vector<sim::Task> tasks(count, cpu_task(rank, moved, 2 * weight));
      tasks[0] = cpu_task(rank, moved, 2 * weight, topology_.hosts[from].message_us / 2);
      return tasks;
    }
    const Link& link = topology_.hosts[from].uplink;
    const double piece = message / count, core_us = link.core_bytes_per_us > 0 ? piece / link.core_bytes_per_us : 0;
    sim::Task task;
    const double rate = link.burst_bytes > 0 ? link.burst_bytes_per_us : link.bytes_per_us;
    task.work_us = weight * topology_.hosts[from].step_us + std::max(piece / rate, core_us);
    if (piece > 0) {
      for (const int resource : resources_between(from, to)) task.uses.push_back({resource, piece / task.work_us});
    }
    for (const int resource : {threads_[rank], cores_[from]}) {
      if (core_us > 0) task.uses.push_back({resource, core_us / task.work_us});
    }
    std::vector<sim::Task> tasks(count, task);
    // The receiver does not wait for this task.
    if (link.message_us > 0) tasks.push_back(cpu_task(rank, 0, 0, link.message_us));
    return tasks;
  }

  std::span<const Schedule> schedules_;
  const Topology& topology_;
  std::vector<std::vector<int>> matching_step_;  // [rank][step]: the matching step of the peer, or -1
  sim::Engine engine_;
  double scale_ = 1;                    // bytes of the whole operation's messages, relative to those of the schedules
  std::vector<int> host_of_, core_of_;  // by rank; core -1 = the rank has a core of its own
  std::vector<MemoryRates> rates_;
  std::vector<int> cores_, buses_, up_, down_, threads_, shared_;
  std::vector<std::pair<int, Link>> bursts_;           // links that let bursts pass, by resource
  std::vector<int> links_;                             // of a torus or mesh, by host, axis and direction
  std::vector<std::vector<int>> tier_up_, tier_down_;  // by tier and group
  int spine_ = -1;
  std::vector<std::vector<Range>> read_by_peers_;  // by owner; sorted, disjoint ranges of elements
  std::map<std::pair<Rank, LaneId>, int> lanes_;
  std::vector<std::vector<std::vector<int>>> tasks_;  // [rank][step]: tasks of its pieces
  std::vector<sim::Task> tasks_to_add_;
  std::vector<std::pair<int, Piece>> waits_for_peer_;  // task of a receive or wait, and the piece it waits for
};

}  // namespace

MemoryRates memory_rates(const Host& host, int64_t message_elements, DType dtype, bool in_place) {
  if (!fits_cache(host, message_elements, dtype, in_place)) return {host.core_bytes_per_us, host.memory_bytes_per_us};
  return {host.cached_core_bytes_per_us, host.cached_bytes_per_us, host.peer_read_factor,   host.peer_write_factor,
          host.shared_write_factor,      host.stage_read_factor,   host.stage_write_factor, host.message_factor};
}

int num_message_pieces(double bytes, bool same_host, const Link& uplink) {
  const bool cores_limit = !same_host && uplink.core_bytes_per_us > 0;
  return static_cast<int>(std::clamp<int64_t>(static_cast<int64_t>(bytes) / kMessagePieceBytes, 1,
                                              cores_limit ? kMaxFarPieces : kMaxMessagePieces));
}

ScheduleTimes time_schedules(std::span<const Schedule> all_ranks, const Topology& topology, CostOptions options) {
  HERD_CHECK_EQ(topology.num_ranks(), static_cast<int>(all_ranks.size()));
  check(topology);
  return ScheduleSimulation(all_ranks, topology, options).run();
}

}  // namespace herd
