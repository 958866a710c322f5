#include "herd/program/op_order.h"

#include <algorithm>
#include <utility>

#include "herd/base/check.h"
#include "herd/program/op_dependencies.h"

namespace herd::program {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

// Names an op of one of several programs.
struct OpOfRank {
  size_t rank = kNone, op = 0;
};

// Adds the ops that an op waits for. A deferred release stands for the ops that it waits for itself.
void add_waits(const Program& step, const std::vector<std::vector<Dependency>>& waits, size_t op,
               std::vector<size_t>& out) {
  const size_t n = step.ops.size(), begin = op - op % n;
  for (const Dependency& d : waits[op % n]) {
    const size_t ops_back = static_cast<size_t>(d.distance) * n;
    if (begin < ops_back) continue;
    const size_t other = begin - ops_back + static_cast<size_t>(d.op);
    if (is_deferred_release(step.ops[static_cast<size_t>(d.op)]))
      add_waits(step, waits, other, out);
    else
      out.push_back(other);
  }
}

// Returns the ops of each lane of a program, through all repetitions.
std::vector<std::vector<size_t>> lanes_of(const Program& step, int repetitions) {
  std::map<Queue, std::vector<size_t>> ops;
  const size_t n = step.ops.size();
  for (size_t i = 0; i < n * static_cast<size_t>(repetitions); ++i) {
    if (!is_deferred_release(step.ops[i % n])) ops[queue_of(step.ops[i % n])].push_back(i);
  }
  std::vector<std::vector<size_t>> out;
  for (auto& [queue, queue_ops] : ops) out.push_back(std::move(queue_ops));
  return out;
}

// Returns the ranks of the sender and the receiver of a message, -1 where there is none.
std::pair<int, int> sender_and_receiver(const Program& step, const Op& op) {
  const int peer = op.peer < 0 ? -1 : step.mesh.peer(op.axis, step.rank, op.peer);
  return op.kind == OpKind::kSend ? std::pair(step.rank, peer) : std::pair(peer, step.rank);
}

bool is_message(const Op& op) { return op.kind == OpKind::kSend || op.kind == OpKind::kReceive; }

// Returns the step, then the programs of the ranks with which it exchanges messages.
std::vector<const Program*> with_peers(const Program& step, std::span<const Program> others) {
  std::map<int, const Program*> peers;
  for (const Op& op : step.ops) {
    if (!is_message(op)) continue;
    const auto [from, to] = sender_and_receiver(step, op);
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

// Computes vector clocks for the ops of several ranks. A clock says, for each lane of the first rank, how many ops of
// the lane have ended.
class Clocks {
 public:
  Clocks(const OpOrder& first, const std::vector<const Program*>& steps, int repetitions) : first_order_(first) {
    for (const Program* step : steps) {
      ranks_.push_back({step, dependencies(*step), lanes_of(*step, repetitions)});
      RankClocks& rank = ranks_.back();
      const size_t ops = step->ops.size() * static_cast<size_t>(repetitions);
      rank.num_clocked.resize(rank.lanes.size(), 0);
      rank.has_clocks.resize(ops, false);
      rank.send_of_receive.resize(step->ops.size());
      for (size_t i = 0; i < step->ops.size(); ++i) {
        if (step->ops[i].lane == Lane::kCompute) rank.last_compute = i;
      }
      rank.start_clocks.resize(ops * first.num_lanes(), 0);
      rank.end_clocks.resize(ops * first.num_lanes(), 0);
    }
    match_messages();
    run();
  }

  std::vector<int32_t> take_start_clocks_of_first() { return std::move(ranks_[0].start_clocks); }

 private:
  struct RankClocks {
    const Program* step;
    std::vector<std::vector<Dependency>> waits;
    std::vector<std::vector<size_t>> lanes;
    std::vector<size_t> num_clocked = {};        // by lane: how many of its ops have their clocks
    std::vector<bool> has_clocks = {};           // by op
    size_t last_compute = kNone;                 // last op of the compute lane in one repetition
    std::vector<OpOfRank> send_of_receive = {};  // by op of one repetition: the send whose message a receive takes
    // The clocks at the start and the end of each op: by op, then by lane of the first rank.
    std::vector<int32_t> start_clocks = {}, end_clocks = {};
  };

  // Finds the send of each receive: the k-th message from one rank to another is the k-th that the other receives from
  // it, in the same repetition.
  void match_messages() {
    std::map<std::pair<int, int>, std::vector<OpOfRank>> sends_by_pair;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const Program& step = *ranks_[r].step;
      for (size_t i = 0; i < step.ops.size(); ++i) {
        if (step.ops[i].kind == OpKind::kSend) sends_by_pair[sender_and_receiver(step, step.ops[i])].push_back({r, i});
      }
    }
    for (RankClocks& rank : ranks_) {
      std::map<std::pair<int, int>, size_t> num_received;
      for (size_t i = 0; i < rank.step->ops.size(); ++i) {
        if (rank.step->ops[i].kind != OpKind::kReceive) continue;
        const std::pair<int, int> ranks = sender_and_receiver(*rank.step, rank.step->ops[i]);
        const auto from = sends_by_pair.find(ranks);
        const size_t k = num_received[ranks]++;
        if (from != sends_by_pair.end() && k < from->second.size()) rank.send_of_receive[i] = from->second[k];
      }
    }
  }

  // Lets lanes take turns. Each gives clocks to its ops until one waits for an op that has no clocks yet.
  void run() {
    size_t num_left = 0;
    for (const RankClocks& rank : ranks_) {
      for (const auto& lane : rank.lanes) num_left += lane.size();
    }
    while (num_left > 0) {
      const size_t num_left_before = num_left;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        for (size_t lane = 0; lane < ranks_[r].lanes.size(); ++lane) {
          while (give_next(r, lane)) --num_left;
        }
      }
      HERD_CHECK(num_left < num_left_before, "lanes wait for each other in a circle");
    }
  }

  // Gives the lane's next op its clocks. Returns false if the lane has no more ops, or if the op waits for an op that
  // has no clocks yet.
  bool give_next(size_t r, size_t lane) {
    RankClocks& rank = ranks_[r];
    const size_t at = rank.num_clocked[lane];
    if (at == rank.lanes[lane].size()) return false;
    const size_t op = rank.lanes[lane][at];
    std::vector<size_t> waits;
    add_waits(*rank.step, rank.waits, op, waits);
    if (const size_t last = compute_before(rank, op); last != kNone) waits.push_back(last);
    for (const size_t other : waits) {
      if (!rank.has_clocks[other]) return false;
    }
    const OpOfRank send = matching_send({r, op});
    if (send.rank != kNone && !ranks_[send.rank].has_clocks[send.op]) return false;

    for (const size_t other : waits) merge(rank.start_clocks, op, rank.end_clocks, other);
    if (at > 0) {
      // On an asynchronous lane, the previous op may still run; ops of a lane end in order.
      const bool may_overlap = is_asynchronous(rank.step->ops[op % rank.step->ops.size()].lane);
      merge(rank.start_clocks, op, may_overlap ? rank.start_clocks : rank.end_clocks, rank.lanes[lane][at - 1]);
      merge(rank.end_clocks, op, rank.end_clocks, rank.lanes[lane][at - 1]);
    }
    merge(rank.end_clocks, op, rank.start_clocks, op);
    if (send.rank != kNone) merge(rank.end_clocks, op, ranks_[send.rank].end_clocks, send.op);
    if (r == 0) {
      int32_t& on_own_lane = rank.end_clocks[op * first_order_.num_lanes() + first_order_.lane(op)];
      on_own_lane = std::max(on_own_lane, first_order_.index_on_lane(op) + 1);
    }
    rank.has_clocks[op] = true;
    ++rank.num_clocked[lane];
    return true;
  }

  // Returns the last op of the compute lane in the repetition before an op's own; kNone if there is none.
  static size_t compute_before(const RankClocks& rank, size_t op) {
    const size_t n = rank.step->ops.size();
    return op < n || rank.last_compute == kNone ? kNone : op - op % n - n + rank.last_compute;
  }

  // Returns the send whose message a receive takes; rank kNone if there is none.
  OpOfRank matching_send(OpOfRank op) const {
    const RankClocks& rank = ranks_[op.rank];
    const size_t n = rank.step->ops.size();
    const OpOfRank send = rank.send_of_receive[op.op % n];
    if (send.rank == kNone) return {};
    return {send.rank, op.op / n * ranks_[send.rank].step->ops.size() + send.op};
  }

  // Raises the clock of `op` to at least that of `other` on every lane.
  void merge(std::vector<int32_t>& clocks, size_t op, const std::vector<int32_t>& others, size_t other) const {
    const size_t lanes = first_order_.num_lanes();
    for (size_t lane = 0; lane < lanes; ++lane)
      clocks[op * lanes + lane] = std::max(clocks[op * lanes + lane], others[other * lanes + lane]);
  }

  const OpOrder& first_order_;  // lanes of the first rank
  std::vector<RankClocks> ranks_;
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
  clocks_ = Clocks(*this, with_peers(step, others), repetitions).take_start_clocks_of_first();
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
  const auto started_after = std::partition_point(ops_of_[lane].begin(), ops_of_[lane].end(),
                                                  [&](size_t other) { return !ends_before(op, other); });
  return static_cast<int32_t>(started_after - ops_of_[lane].begin());
}

}  // namespace herd::program
