#include "herd/cli/host_probe.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>

#include "herd/base/median.h"
#include "herd/collectives/choose.h"
#include "herd/collectives/staging.h"
#include "herd/comm/context.h"
#include "herd/comm/core_share.h"
#include "herd/comm/link_probe.h"
#include "herd/kernels/copy.h"
#include "herd/kernels/reduce.h"
#include "herd/transport/local_channel.h"

namespace herd::cli {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kLeastBytes = 1 << 10, kMostBytes = 128 << 20, kTurnBytes = 512 << 10;
// Where ranks take turns on a core, what a shorter copy or message takes is lost in the turns. So inside one host each
// rank copies while the others wait; but long buffers all at once, since they share the way to memory.
constexpr int64_t kLeastByTurns = 16 << 10, kLeastMessagesByTurns = 256 << 10, kLeastCopiedAtOnce = 4 << 20;
constexpr int kBarriers = 8;              // in a row; where ranks take turns on cores one, as an operation is measured
constexpr int64_t kMostOfShorter = 1024;  // elements

// Rounds of which a sample is made, after some that bring memory, stage and rings into the state that repetitions of an
// operation find: what was written past the caches, or pushed out of them, comes back over several.
struct Rounds {
  int before, measured;
};
// The more ranks take turns, the fewer of them.
Rounds rounds_of(int64_t bytes, int turns) {
  if (bytes > 8 << 20) return {1, 1};
  return {std::max(2, 16 * 4 / std::max(4, turns)), std::max(2, 5 * 4 / std::max(4, turns))};
}
// Messages of so many elements until a ring has been filled once: they lie behind a line of their own.
int once_around(int ranks, int64_t elements) {
  const int64_t ring = transport::LocalLayout(ranks).ring_bytes[static_cast<size_t>(transport::Lane::kCollective)];
  return static_cast<int>(ring / (64 + elements * size_of(DType::kF32)));
}
constexpr Rounds kPieces = {4, 12};  // of a long buffer, one after the other as an operation moves them

// The shorter messages, too, hold an element for each rank.
int64_t least_bytes(int ranks, bool by_turns) {
  return std::max(by_turns ? kLeastByTurns : kLeastBytes, 2 * ranks * size_of(DType::kF32));
}

int64_t piece_of(int64_t bytes) { return round_up(bytes / num_pieces(bytes, DType::kU8), 64); }

// Whether it is so on any rank: all go through the same kinds and rounds.
bool any_rank(Communicator& comm, bool here) {
  double most = here;
  comm.all_reduce(std::span(&most, 1), {.op = ReduceOp::kMax});
  return most > 0;
}

int num_hosts(Communicator& comm) {
  const std::vector<int>& hosts = comm::Access::group(comm).hosts();
  return hosts.empty() ? 1 : 1 + *std::max_element(hosts.begin(), hosts.end());
}

double now_us() { return std::chrono::duration<double, std::micro>(steady_clock::now().time_since_epoch()).count(); }

double clock_us() {
  double least = 1;
  for (int i = 0; i < 20; ++i) {
    const double begin = now_us();
    least = std::min(least, now_us() - begin);
  }
  return least;
}

// Where `rank` of the group has its part of the memory in this process.
std::byte* part_of_rank(Communicator& comm, const SymmetricMemory& memory, Rank rank) {
  for (const comm::SymmetricRegion& region : comm::Access::context(comm).regions->all()) {
    if (region.memory->of(region.self) == memory.data()) return region.memory->of(rank);
  }
  return nullptr;
}

// Turns what is predicted to what was measured, by a time between none and that. Short turns pass while the cores do
// something else, so that the prediction does not grow with them evenly.
void fit(double measured_us, const std::function<double(double)>& predicted) {
  double least = 0, most = measured_us;
  for (int halvings = 0; halvings < 20; ++halvings) {
    const double middle = (least + most) / 2;
    (predicted(middle) < measured_us ? least : most) = middle;
  }
  predicted(least);
}

}  // namespace

HostProbe::HostProbe(Communicator& comm, const ProbedOperation& operation)
    : comm_(comm),
      crowded_(any_rank(comm, comm::cores_a_rank(*comm::Access::context(comm).transport) < 1)),
      barriers_(crowded_ && num_hosts(comm) == 1 ? 1 : kBarriers),
      operation_(operation),
      streams_(operation.bytes >= comm::CompiledSchedule::kStreamBytes),
      clock_us_(clock_us()),
      // A rank has the whole message, and out of place its part: two buffers like these take as much.
      bytes_(round_up(
          std::clamp(operation.bytes * (operation.in_place ? comm.size() : comm.size() + 1) / (2 * comm.size()),
                     least_bytes(comm.size(), crowded_ && num_hosts(comm) > 1), kMostBytes),
          64)),
      part_bytes_(round_up(2 * bytes_ / (operation.in_place ? comm.size() : comm.size() + 1), 64)),
      stage_bytes_(piece_of(operation.in_place ? bytes_ : part_bytes_)),
      block_(bytes_ / comm.size() / size_of(DType::kF32)),
      shorter_(std::clamp<int64_t>(block_ / 8, 1, kMostOfShorter)),
      pattern_(operation.dtype,
               operation.reduce.value_or(operation.dtype == DType::kBool ? ReduceOp::kMax : ReduceOp::kSum),
               comm.size()),
      sink_(SharedMemory::create("herd:probe", round_up(bytes_, kPageBytes))),
      source_(comm.allocate_symmetric(bytes_)) {
  sink_.commit(0, round_up(bytes_, kPageBytes));
  fill(sink_.data());
  here_ = 0;
  Rank next = -1;
  for (int i = 0; i < comm.size(); ++i) {
    const Rank rank = (comm.rank() + i) % comm.size();
    if (!comm::Access::group(comm).channel().maps(rank)) continue;
    ++here_;
    if (next < 0 && i > 0) next = rank;
    if (rank < comm.rank()) first_here_ = false;
  }
  if (num_hosts(comm) > 1) host_bytes_ = std::max<int64_t>(1, operation.bytes / num_hosts(comm));
  each_alone_ = here_ == comm_.size() && (operation_.rooted || (crowded_ && bytes_ < kLeastCopiedAtOnce));
  at_once_bytes_ = crowded_ && each_alone_ ? std::max(bytes_, kLeastCopiedAtOnce) : bytes_;
  if (crowded_ && !each_alone_) {  // ranks that take turns on a core copy more than a piece in a turn
    part_bytes_ = bytes_;
    stage_bytes_ = std::min(bytes_, kTurnBytes);
  }
  stage_ = comm.allocate_symmetric(stage_bytes_);
  comm.barrier();
  barrier_ = comm::Access::last_algorithm(comm);
  have_peers_ = any_rank(comm, next >= 0);
  if (next < 0) return;
  peer_source_ = part_of_rank(comm, source_, next);
  peer_stage_ = part_of_rank(comm, stage_, next);
}

bool HostProbe::measures(Kind kind) const {
  if (kind >= kReadPeer && kind <= kReadStage && kind != kWriteStage) return have_peers_;
  if (kind == kRing) return crowded_ && here_ == comm_.size();
  // With other hosts in it an exchange says nothing about this one.
  return (kind != kShorterMessages && kind != kMessages) ||
         (here_ > 1 && here_ == comm_.size() && (!crowded_ || bytes_ >= kLeastMessagesByTurns));
}

void HostProbe::fill(std::byte* memory) const {
  pattern_.fill(memory, 0, bytes_ / size_of(operation_.dtype), comm_.rank(), 0);
}

// As before an operation: each owner has just written its memory, all of it before the first piece goes to the stage. A
// stage, what a peer has read since, and an output that only its owner's user has read, are as the kind before has left
// them.
void HostProbe::settle(Kind kind, int64_t offset) {
  if (kind == kReadStage || kind == kWriteShared || kind == kReadOwn || (kind == kWritePeer && !operation_.in_place))
    return;
  if (kind == kWriteStage && offset > 0) return;
  fill(static_cast<std::byte*>(source_.data()));
}

void HostProbe::exchange(int64_t elements) {
  const int64_t all = elements * comm_.size();
  comm_.all_to_all(Buffer{source_.data(), all, DType::kF32}, Buffer{sink_.data(), all, DType::kF32},
                   {.algorithm = "pairwise"});
}

void HostProbe::run(Kind kind, int64_t offset) {
  auto* const source = static_cast<std::byte*>(source_.data());
  auto* const stage = static_cast<std::byte*>(stage_.data());
  std::byte* const sink = sink_.data();
  if (kind >= kReadPeer && kind <= kReadStage && peer_source_ == nullptr) return;  // it is alone on its host
  const auto store = streams_ ? kernels::StoreKind::kStream : kernels::StoreKind::kCached;
  const auto to_peers = [](int64_t bytes, kernels::StoreKind shorter) {
    return bytes >= comm::CompiledSchedule::kTakeOverBytes ? kernels::StoreKind::kTakeOver : shorter;
  };
  const auto move = [](std::byte* to, const std::byte* from, int64_t bytes, kernels::StoreKind as) {
    void* const targets[] = {to};
    kernels::copy(targets, from, bytes, as);
  };
  // What an operation that reduces reads of a peer, it adds to what it has.
  const auto take = [&](std::byte* to, const std::byte* from, int64_t bytes) {
    if (!operation_.reduce) return move(to, from, bytes, store);
    void* const targets[] = {to};
    const void* const sources[] = {to, from};
    kernels::reduce(targets, sources, bytes / size_of(operation_.dtype), operation_.dtype, *operation_.reduce, 1.0,
                    store);
  };
  switch (kind) {
    case kAlone:
      if (first_here_ || each_alone_) move(sink, source, bytes_, store);
      return;
    case kAll:
      for (int64_t copied = 0; copied < at_once_bytes_; copied += bytes_) move(sink, source, bytes_, store);
      return;
    case kReadOwn:
      return move(sink, source, bytes_, store);
    case kReadPeer:
      return take(sink, peer_source_, bytes_);
    case kWritePeer:
      return move(peer_source_, sink, bytes_, streams_ ? store : to_peers(bytes_, store));
    case kReadShared:
      return move(sink, peer_source_, part_bytes_, store);
    case kWriteShared:
      return move(source, sink, part_bytes_, store);
    case kWriteStage:
      move(stage, source + offset, stage_bytes_, to_peers(stage_bytes_, kernels::StoreKind::kCached));
      std::atomic_thread_fence(std::memory_order_seq_cst);  // as a signal to the reader: all of it has gone out
      return;
    case kReadStage:
      return take(sink + offset, peer_stage_, stage_bytes_);
    case kBarrier:
      for (int i = 0; i < barriers_; ++i) comm_.barrier();
      return;
    case kRing:
      return comm_.all_gather(Buffer{source_.data(), 1, DType::kF32}, Buffer{sink_.data(), comm_.size(), DType::kF32},
                              {.algorithm = "ring"});
    case kShorterMessages:
      return exchange(shorter_);
    case kMessages:
      return exchange(block_);
    case kKinds:
      return;
  }
}

double HostProbe::once(Kind kind, int64_t offset) {
  settle(kind, offset);
  const bool copies = kind < kBarrier;
  double begin = 0, us = 0;
  const auto timed = [&] {
    begin = now_us();
    run(kind, offset);
    us = std::max(0.0, now_us() - begin - clock_us_);
  };
  if (each_alone_ && copies && kind != kAll) {
    for (Rank turn = 0; turn < comm_.size(); ++turn) {
      comm_.barrier();
      if (turn == comm_.rank()) timed();
    }
    comm_.all_reduce(std::span(&us, 1), {.op = ReduceOp::kAverage});
    return us;
  }
  comm_.barrier();
  if (!copies) comm_.barrier();  // as before an operation: whoever came last to the first one would begin first
  timed();
  if (!crowded_ || !copies || kind == kAlone || here_ < comm_.size()) {
    comm_.all_reduce(std::span(&us, 1), {.op = ReduceOp::kMax});
    return us;
  }
  // Ranks that take turns on a core: from the first one's begin to the last one's end, by the host's one clock.
  std::array<double, 2> window = {-begin, begin + us};
  comm_.all_reduce(window, {.op = ReduceOp::kMax});
  return window[0] + window[1];
}

void HostProbe::sample() {
  const std::vector<std::vector<Kind>> by_turns = {
      {kAlone},   {kAll},  {kReadPeer}, {kReadOwn, kWritePeer}, {kReadShared, kWriteShared}, {kWriteStage, kReadStage},
      {kBarrier}, {kRing}, {kMessages}, {kShorterMessages}};
  for (const std::vector<Kind>& kinds : by_turns) {
    Rounds rounds =
        kinds[0] == kWriteStage && stage_bytes_ < bytes_ ? kPieces : rounds_of(bytes_, each_alone_ ? comm_.size() : 1);
    // Rings that were not used for a while have left the caches: once around.
    if (kinds[0] == kMessages) rounds.before = std::max(rounds.before, once_around(comm_.size(), block_));
    for (int round = 0; round < rounds.before + rounds.measured; ++round) {
      const int64_t offset = round % (bytes_ / stage_bytes_) * stage_bytes_;
      for (const Kind kind : kinds) {
        const double us = measures(kind) ? once(kind, offset) : 0;
        if (round >= rounds.before) us_[kind].push_back(us);
      }
    }
  }
  if (host_bytes_ > 0) sample_link();
}

void HostProbe::sample_link() {
  std::array<double, 6> said = {};
  if (const auto link = comm::probe_links(comm::Access::group(comm_), host_bytes_)) {
    said = {link->latency_us,  1 / link->bytes_per_us,
            link->message_us,  link->core_bytes_per_us > 0 ? 1 / link->core_bytes_per_us : 0,
            link->burst_bytes, link->burst_bytes > 0 ? 1 / link->burst_bytes_per_us : 0};
  }
  comm_.broadcast(said, 0);
  for (size_t i = 0; i < said.size(); ++i) link_[i].push_back(said[i]);
}

// What an exchange takes beyond the model's other terms: for each byte of a message in the rings, and for each message.
void HostProbe::apply_messages(Topology& topology, double at_once, double us_short, double us_long) const {
  Host& host = topology.hosts[0];
  const auto others = static_cast<double>(comm_.size() - 1);
  const auto longer = static_cast<double>((block_ - shorter_) * size_of(DType::kF32));
  // Each rank copies its own block, and for each peer stores one block into a ring and loads one from another.
  const double passes = (us_long - us_short) / (at_once * longer);
  host.message_factor = std::max(0.3, ((passes - 2) / others - 2) / 2);
  if (crowded_) return;  // a ring has told what a message takes
  CollectiveRequest request;
  request.collective = Collective::kAllToAll;
  request.num_ranks = comm_.size();
  request.elements = shorter_ * comm_.size();
  request.same_host = true;
  const auto predicted = [&](double message_us) {
    host.message_us = message_us;
    return predict_us("pairwise", request, topology);
  };
  const double without = predicted(0), each = predicted(1) - without;
  host.message_us = std::max(0.0, us_short - without) / each;
}

// What the model's other terms leave over: inside one host for each turn on a core, as a barrier tells, and for each
// message, as a ring of them tells. Between hosts turns are known no better than for any host; a barrier tells how much
// later than alone a message is seen.
void HostProbe::apply_turns(Topology& topology, double barrier_us, double ring_us) const {
  CollectiveRequest request;
  request.collective = Collective::kBarrier;
  request.num_ranks = comm_.size();
  request.same_host = topology.hosts.size() == 1;
  if (topology.hosts.size() > 1) {
    if (link_[0].empty()) return;  // a host that the topology cuts: its links stay as they are given
    const double latency_us = topology.hosts[0].uplink.latency_us;
    fit(barrier_us, [&](double more_us) {
      for (Host& host : topology.hosts) host.uplink.latency_us = latency_us + more_us;
      return predict_us(barrier_, request, topology);
    });
    return;
  }
  fit(barrier_us, [&](double turn_us) {
    topology.hosts[0].turn_us = turn_us;
    return predict_us(barrier_, request, topology);
  });
  if (!measures(kRing)) return;
  request.collective = Collective::kAllGather;
  request.elements = comm_.size();
  fit(ring_us, [&](double message_us) {
    topology.hosts[0].message_us = message_us;
    return predict_us("ring", request, topology);
  });
}

Topology HostProbe::applied_to(Topology topology, double core_ns) const {
  std::array<double, kKinds> us;
  for (size_t kind = 0; kind < kKinds; ++kind) us[kind] = std::max(1e-3, median(us_[kind]));
  const auto bytes = static_cast<double>(bytes_), stage = static_cast<double>(stage_bytes_);
  const double at_once = us[kAll] / static_cast<double>(round_up(at_once_bytes_, bytes_)) / 2;
  // Us a byte of own memory, with all ranks at work, or with each alone as all copies are measured then.
  const double one = each_alone_ ? us[kAlone] / bytes / 2 : at_once;
  const double all = static_cast<double>(here_) / at_once;
  const auto factor = [one](double us_a_byte, int own = 1) { return std::max(0.3, us_a_byte / one - own); };
  const int own_to_take = operation_.reduce ? 2 : 1;  // passes over own memory
  const int rounds = barrier_ == "direct_signal"
                         ? 1
                         : std::max(1, static_cast<int>(std::bit_width(static_cast<unsigned>(comm_.size() - 1))));
  const double barrier = us[kBarrier] / barriers_;
  for (Host& host : topology.hosts) {
    host.memory_bytes_per_us = host.cached_bytes_per_us = all;
    host.core_bytes_per_us = host.cached_core_bytes_per_us = std::max(2 * bytes / us[kAlone], 1 / one);
    host.stage_write_factor = factor(us[kWriteStage] / stage);
    const double steps = 2 * host.step_us;
    double round = std::max(0.0, barrier / rounds - steps);
    // Nothing measures the links of a host that the topology cuts into several: they stay as they are given.
    if (topology.hosts.size() > 1 && !link_[0].empty()) {
      const double core_us = median(link_[3]), burst_us = median(link_[5]);
      host.uplink = {median(link_[0]), 1 / median(link_[1]), median(link_[2]), core_us > 0 ? 1 / core_us : 0};
      if (burst_us > 0) {
        host.uplink.burst_bytes = median(link_[4]);
        host.uplink.burst_bytes_per_us = std::max(host.uplink.bytes_per_us, 1 / burst_us);
      }
      // In a round of a barrier each rank sends one message, and receives one.
      round = std::min(round, std::max(host.uplink.latency_us, 2 * host.uplink.message_us));
    } else if (!crowded_) {
      host.signal_us = round = core_ns > 0 ? std::min(core_ns / 2e3, round) : round;
    }
    host.call_us = crowded_ ? 0 : std::max(0.0, barrier - rounds * (round + steps));  // by turns these are all of it
    if (!have_peers_) continue;
    host.peer_read_factor = factor(us[kReadPeer] / bytes, own_to_take);
    host.peer_write_factor = factor(us[kWritePeer] / bytes);
    host.shared_write_factor = factor(us[kWriteShared] / static_cast<double>(part_bytes_));
    host.stage_read_factor = factor(us[kReadStage] / stage, own_to_take);
    host.cache_bytes = INT64_MAX / 2;  // the factors hold for this very message
  }
  if (crowded_) apply_turns(topology, barrier, us[kRing]);
  if (measures(kMessages)) apply_messages(topology, at_once, us[kShorterMessages], us[kMessages]);
  return topology;
}

}  // namespace herd::cli
