#include "herd/program/op_order.h"

#include <algorithm>
#include <utility>

#include "herd/base/check.h"
#include "herd/program/op_dependencies.h"

namespace herd::program {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

struct OpOfRank {
  size_t rank = kNone, op = 0;
};

// Adds what an op waits for, through deferred releases to what these wait for.
void add_waits(const Program& step, const std::vector<std::vector<Dependency>>& waits, size_t op,
               std::vector<size_t>& out) {
  const size_t n = step.ops.size(), begin = op - op % n;
  for (const Dependency& d : waits[op % n]) {
    const size_t back = static_cast<size_t>(d.distance) * n;
    if (begin < back) continue;
    const size_t other = begin - back + static_cast<size_t>(d.op);
    if (is_deferred_release(step.ops[static_cast<size_t>(d.op)]))
      add_waits(step, waits, other, out);
    else
      out.push_back(other);
  }
}

// The lanes of one program: its ops by lane, through all repetitions.
std::vector<std::vector<size_t>> lanes_of(const Program& step, int repetitions) {
  std::map<Queue, std::vector<size_t>> ops;
  const size_t n = step.ops.size();
  for (size_t i = 0; i < n * static_cast<size_t>(repetitions); ++i) {
    if (!is_deferred_release(step.ops[i % n])) ops[queue_of(step.ops[i % n])].push_back(i);
  }
  std::vector<std::vector<size_t>> out;
  for (auto& [queue, all] : ops) out.push_back(std::move(all));
  return out;
}

// Global numbers of sender and receiver; negative where the other end is nobody.
std::pair<int, int> ends_of(const Program& step, const Op& op) {
  const int peer = op.peer < 0 ? -1 : step.mesh.peer(op.axis, step.rank, op.peer);
  return op.kind == OpKind::kSend ? std::pair(step.rank, peer) : std::pair(peer, step.rank);
}

bool is_message(const Op& op) { return op.kind == OpKind::kSend || op.kind == OpKind::kReceive; }

// The step, then the programs that it exchanges messages with.
std::vector<const Program*> with_peers(const Program& step, std::span<const Program> others) {
  std::map<int, const Program*> peers;
  for (const Op& op : step.ops) {
    if (!is_message(op)) continue;
    const auto [from, to] = ends_of(step, op);
    peers[from == step.rank ? to : from] = nullptr;
  }
  peers.erase(step.rank);
  for (const Program& other : others) {
    if (const auto peer = peers.find(other.rank); peer != peers.end()) peer->second = &other;
  }
  std::vector<const Program*> out = {&step};
  for (const auto& [rank, program] : peers) {
    if (program != nullptr) out.push_back(program);
  }
  return out;
}

// The clocks of a few ranks' ops, for the lanes of the first of them, whose order is asked for.
class Clocks {
 public:
  Clocks(const OpOrder& first, const std::vector<const Program*>& steps, int repetitions) : first_(first) {
    for (const Program* step : steps) {
      ranks_.push_back({step, dependencies(*step), lanes_of(*step, repetitions)});
      Rank& rank = ranks_.back();
      const size_t ops = step->ops.size() * static_cast<size_t>(repetitions);
      rank.over.resize(rank.lanes.size(), 0);
      rank.done.resize(ops, false);
      rank.sends.resize(step->ops.size());
      rank.starts.resize(ops * first.num_lanes(), 0);
      rank.ends.resize(ops * first.num_lanes(), 0);
    }
    match_messages();
    run();
  }

  std::vector<int32_t> of_first() { return std::move(ranks_[0].starts); }

 private:
  struct Rank {
    const Program* step;
    std::vector<std::vector<Dependency>> waits;
    std::vector<std::vector<size_t>> lanes;
    std::vector<size_t> over = {};     // by lane: how many of its ops have their clocks
    std::vector<bool> done = {};       // by op: true once it has its clocks
    std::vector<OpOfRank> sends = {};  // by op of one repetition: the send that a receive takes
    // These are the clocks at start and end. By op, then by lane of the first rank: how many of the lane's ops are
    // over.
    std::vector<int32_t> starts = {}, ends = {};
  };

  // The k-th message from one rank to another is the k-th that the other receives from it, in the same repetition.
  void match_messages() {
    std::map<std::pair<int, int>, std::vector<OpOfRank>> sent;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const Program& step = *ranks_[r].step;
      for (size_t i = 0; i < step.ops.size(); ++i) {
        if (step.ops[i].kind == OpKind::kSend) sent[ends_of(step, step.ops[i])].push_back({r, i});
      }
    }
    for (Rank& rank : ranks_) {
      std::map<std::pair<int, int>, size_t> received;
      for (size_t i = 0; i < rank.step->ops.size(); ++i) {
        if (rank.step->ops[i].kind != OpKind::kReceive) continue;
        const std::pair<int, int> ends = ends_of(*rank.step, rank.step->ops[i]);
        const auto from = sent.find(ends);
        const size_t k = received[ends]++;
        if (from != sent.end() && k < from->second.size()) rank.sends[i] = from->second[k];
      }
    }
  }

  // Lets lanes take turns. Each gives its ops clocks until the next one waits for an op without.
  void run() {
    size_t left = 0;
    for (const Rank& rank : ranks_) {
      for (const auto& lane : rank.lanes) left += lane.size();
    }
    while (left > 0) {
      const size_t before = left;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        for (size_t lane = 0; lane < ranks_[r].lanes.size(); ++lane) {
          while (give_next(r, lane)) --left;
        }
      }
      HERD_CHECK(left < before, "lanes wait for each other in a circle");
    }
  }

  // Gives the lane's next op its clocks, unless that has to wait for another's.
  bool give_next(size_t r, size_t lane) {
    Rank& rank = ranks_[r];
    const size_t at = rank.over[lane];
    if (at == rank.lanes[lane].size()) return false;
    const size_t op = rank.lanes[lane][at];
    std::vector<size_t> waits;
    add_waits(*rank.step, rank.waits, op, waits);
    for (const size_t other : waits) {
      if (!rank.done[other]) return false;
    }
    const OpOfRank send = sent_to({r, op});
    if (send.rank != kNone && !ranks_[send.rank].done[send.op]) return false;

    for (const size_t other : waits) merge(rank.starts, op, rank.ends, other);
    if (at > 0) {
      const bool under_way =
          is_asynchronous(rank.step->ops[op % rank.step->ops.size()].lane);  // whether the op before may still run
      merge(rank.starts, op, under_way ? rank.starts : rank.ends, rank.lanes[lane][at - 1]);
      merge(rank.ends, op, rank.ends, rank.lanes[lane][at - 1]);  // lanes end in order
    }
    merge(rank.ends, op, rank.starts, op);
    if (send.rank != kNone) merge(rank.ends, op, ranks_[send.rank].ends, send.op);
    if (r == 0) {
      int32_t& own = rank.ends[op * first_.num_lanes() + first_.lane(op)];
      own = std::max(own, first_.index_on_lane(op) + 1);
    }
    rank.done[op] = true;
    ++rank.over[lane];
    return true;
  }

  OpOfRank sent_to(OpOfRank op) const {
    const Rank& rank = ranks_[op.rank];
    const size_t n = rank.step->ops.size();
    const OpOfRank send = rank.sends[op.op % n];
    if (send.rank == kNone) return {};
    return {send.rank, op.op / n * ranks_[send.rank].step->ops.size() + send.op};
  }

  // Raises the clock of `op` to that of `other`, lane by lane: what is over there is over here.
  void merge(std::vector<int32_t>& clocks, size_t op, const std::vector<int32_t>& others, size_t other) const {
    const size_t lanes = first_.num_lanes();
    for (size_t lane = 0; lane < lanes; ++lane)
      clocks[op * lanes + lane] = std::max(clocks[op * lanes + lane], others[other * lanes + lane]);
  }

  const OpOrder& first_;
  std::vector<Rank> ranks_;
};

}  // namespace

OpOrder::OpOrder(const Program& step, int repetitions, std::span<const Program> others)
    : ops_of_(lanes_of(step, repetitions)),
      lane_of_(step.ops.size(), kNoLane),
      index_(step.ops.size() * static_cast<size_t>(repetitions)) {
  for (size_t lane = 0; lane < ops_of_.size(); ++lane) {
    for (size_t index = 0; index < ops_of_[lane].size(); ++index) {
      const size_t op = ops_of_[lane][index];
      lane_of_[op % step.ops.size()] = lane;
      index_[op] = static_cast<int32_t>(index);
    }
  }
  waits_.resize(index_.size());
  const auto waits = dependencies(step);
  for (size_t op = 0; op < waits_.size(); ++op) {
    if (is_deferred_release(op)) add_waits(step, waits, op, waits_[op]);
  }
  clocks_ = Clocks(*this, with_peers(step, others), repetitions).of_first();
}

bool OpOrder::ends_before(size_t earlier, size_t later) const {
  if (!is_deferred_release(earlier)) return num_ended_before(later, lane(earlier)) > index_on_lane(earlier);
  return std::all_of(waits_[earlier].begin(), waits_[earlier].end(),
                     [&](size_t one) { return ends_before(one, later); });
}

int32_t OpOrder::first_started_after(size_t op, size_t lane) const {
  if (is_deferred_release(op)) {
    int32_t last = 0;
    for (const size_t one : waits_[op]) last = std::max(last, first_started_after(one, lane));
    return last;
  }
  const auto after = std::partition_point(ops_of_[lane].begin(), ops_of_[lane].end(),
                                          [&](size_t other) { return !ends_before(op, other); });
  return static_cast<int32_t>(after - ops_of_[lane].begin());
}

}  // namespace herd::program
