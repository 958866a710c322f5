#include "herd/cli/host_probe.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "herd/base/elapsed.h"
#include "herd/base/median.h"
#include "herd/cli/fit.h"
#include "herd/cli/probe_rounds.h"
#include "herd/collectives/choose.h"
#include "herd/collectives/staging.h"
#include "herd/comm/context.h"
#include "herd/comm/core_share.h"
#include "herd/comm/link_probe.h"
#include "herd/kernels/copy.h"
#include "herd/kernels/reduce.h"

namespace herd::cli {
namespace {

constexpr int64_t kTurnBytes = 512 << 10;
// Where ranks take turns on a core, what a shorter copy takes, or messages shorter in all, is lost in the turns. So
// inside one host each rank copies while the others wait; but long buffers all at once, since they share the way to
// memory.
constexpr int64_t kLeastMessagesByTurns = 32 << 10, kLeastCopiedAtOnce = 256 << 10;
constexpr int64_t kWakingBytes = 8 << 10;
constexpr double kLeastFactor = 0.05, kLeastOfMessages = 0.01;

constexpr int kMoreBetweenHosts = 6;

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

void move(std::byte* to, const std::byte* from, int64_t bytes, kernels::StoreKind store) {
  void* const targets[] = {to};
  kernels::copy(targets, from, bytes, store);
}

// As a signal to the reader does: until all that was written has gone out.
void all_out() { std::atomic_thread_fence(std::memory_order_seq_cst); }

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

}  // namespace

HostProbe::HostProbe(Communicator& comm, const ProbedOperation& operation)
    : comm_(comm),
      one_clock_(comm::on_one_machine(*comm::Access::context(comm).transport)),
      crowded_(any_rank(comm, comm::cores_a_rank(*comm::Access::context(comm).transport) < 1)),
      operation_(operation),
      streams_(operation.bytes >= comm::CompiledSchedule::kStreamBytes),
      clock_us_(clock_us()),
      size_(probe_sizes(operation, comm.size(), crowded_ && num_hosts(comm) > 1)),
      step_(comm::Access::group(comm).channel()),
      pattern_(operation.dtype,
               operation.reduce.value_or(operation.dtype == DType::kBool ? ReduceOp::kMax : ReduceOp::kSum),
               comm.size()),
      sink_(SharedMemory::create("herd:probe", round_up(memory_bytes(), kPageBytes))),
      source_(comm.allocate_symmetric(memory_bytes())) {
  sink_.commit(0, round_up(memory_bytes(), kPageBytes));
  fill(sink_.data(), memory_bytes());
  here_ = 0;
  for (int i = 0; i < comm.size(); ++i) {
    const Rank rank = (comm.rank() + i) % comm.size();
    if (!comm::Access::group(comm).channel().maps(rank)) continue;
    ++here_;
    if (next_ < 0 && i > 0) next_ = rank;
    if (rank < comm.rank()) first_here_ = false;
  }
  if (num_hosts(comm) > 1) host_bytes_ = std::max<int64_t>(1, operation.bytes / num_hosts(comm));
  each_alone_ = here_ == comm_.size() && (operation_.rooted || (crowded_ && size_.buffer < kLeastCopiedAtOnce));
  at_once_bytes_ = crowded_ && each_alone_ ? std::max(size_.buffer, kLeastCopiedAtOnce) : size_.buffer;
  // Ranks that take turns on a core copy more than a piece in a turn.
  if (crowded_ && !each_alone_) size_.staged = std::min(size_.buffer, kTurnBytes);
  stage_ = comm.allocate_symmetric(slots() * size_.staged);
  comm.barrier();
  barrier_ = comm::Access::last_algorithm(comm);
  have_peers_ = any_rank(comm, next_ >= 0);
  if (next_ < 0) return;
  peer_source_ = part_of_rank(comm, source_, next_);
  peer_stage_ = part_of_rank(comm, stage_, next_);
}

bool HostProbe::measures(Kind kind) const {
  if (kind == kReducePart || kind == kCopyPart) return have_peers_ && operation_.copies_what_was_read();
  if (kind >= kReadPeer && kind <= kReadStage && kind != kWriteStage) return have_peers_;
  if (kind == kBarrier) return crowded_ || host_bytes_ == 0;
  if (kind == kRing) return crowded_ && here_ == comm_.size();
  // With other hosts in it an exchange says nothing about this one.
  return (kind != kShorterMessages && kind != kMessages) ||
         (here_ > 1 && here_ == comm_.size() && (!crowded_ || memory_bytes() >= kLeastMessagesByTurns));
}

void HostProbe::fill(std::byte* memory, int64_t bytes) const {
  pattern_.fill(memory, 0, bytes / size_of(operation_.dtype), comm_.rank(), 0);
}

// What an operation that reduces reads of a peer, it adds to its input: in place, or to `own` with a result elsewhere.
void HostProbe::take(std::byte* to, const std::byte* from, const std::byte* own, int64_t bytes) const {
  if (!operation_.reduce) return move(to, from, bytes, store_kind());
  void* const targets[] = {to};
  const void* const sources[] = {operation_.in_place ? to : own, from};
  kernels::reduce(targets, sources, bytes / size_of(operation_.dtype), operation_.dtype, *operation_.reduce, 1.0,
                  store_kind());
}

// Operations follow each other, and with them reductions: a core that has not reduced for some microseconds takes up to
// two more for the next one, until its wide units are awake.
void HostProbe::wake() const {
  const auto* const own = static_cast<const std::byte*>(source_.data());
  const int64_t at_once = std::min(size_.staged, kWakingBytes);
  for (int64_t reduced = 0; reduced < kWakingBytes; reduced += at_once) take(sink_.data(), own, own, at_once);
}

// As before an operation: each owner has just written its memory, all of it before the first piece goes to the stage. A
// stage, what a peer has read since, and an output that only its owner's user has read, are as the kind before has left
// them.
void HostProbe::settle(Kind kind, int round) {
  auto* const source = static_cast<std::byte*>(source_.data());
  if (kind == kReadStage || kind == kCopyPart || kind == kReadOwn || (kind == kWritePeer && !operation_.in_place))
    return;
  if (kind == kWriteStage && round % pieces() > 0) return;
  const int64_t read = operation_.reduces_elsewhere() ? 2 * size_.read : size_.read;
  fill(source, kind < kBarrier && kind != kReducePart ? std::max(size_.buffer, read) : memory_bytes());
}

// Messages go around a ring; where one rank has all, down a tree, or up it. On their way they are reduced as the
// operation's are.
CollectiveRequest HostProbe::messages(int64_t bytes) const {
  CollectiveRequest request;
  if (operation_.rooted) {
    request.collective = operation_.reduce ? Collective::kReduce : Collective::kBroadcast;
  } else if (operation_.reduce) {
    request.collective = operation_.in_place ? Collective::kAllReduce : Collective::kReduceScatter;
  } else {
    request.collective = Collective::kAllGather;
  }
  request.num_ranks = comm_.size();
  request.dtype = operation_.dtype;
  request.elements = bytes / size_of(operation_.dtype) * (operation_.rooted ? 1 : comm_.size());
  request.in_place = operation_.rooted || request.collective == Collective::kAllReduce;
  request.same_host = true;
  return request;
}

void HostProbe::pass(int64_t bytes) {
  const CollectiveRequest request = messages(bytes);
  const int64_t elements = bytes / size_of(request.dtype);
  const Buffer message{source_.data(), elements, request.dtype}, whole{source_.data(), request.elements, request.dtype};
  const OpOptions options{.op = operation_.reduce.value_or(ReduceOp::kSum), .algorithm = messages_by()};
  switch (request.collective) {
    case Collective::kBroadcast:
      return comm_.broadcast(message, 0, options);
    case Collective::kReduce:
      return comm_.reduce(message, 0, options);
    case Collective::kAllReduce:
      return comm_.all_reduce(whole, options);
    case Collective::kReduceScatter:
      return comm_.reduce_scatter(whole, Buffer{sink_.data(), elements, request.dtype}, options);
    default:
      return comm_.all_gather(message, Buffer{sink_.data(), request.elements, request.dtype}, options);
  }
}

void HostProbe::run(Kind kind, int round) {
  auto* const source = static_cast<std::byte*>(source_.data());
  const int64_t offset = round % pieces() * size_.staged, slot = round % slots() * size_.staged;
  std::byte* const sink = sink_.data();
  if (kind >= kReadPeer && kind <= kReadStage && peer_source_ == nullptr) return;  // it is alone on its host
  const auto to_peers = [](int64_t bytes, kernels::StoreKind shorter) {
    return bytes >= comm::CompiledSchedule::kTakeOverBytes ? kernels::StoreKind::kTakeOver : shorter;
  };
  const kernels::StoreKind store = store_kind();
  switch (kind) {
    case kAlone:
      if (first_here_ || each_alone_) move(sink, source, size_.buffer, store);
      return;
    case kAll:
      for (int64_t copied = 0; copied < at_once_bytes_; copied += size_.buffer) move(sink, source, size_.buffer, store);
      return;
    case kReadOwn:
      return move(sink, source, size_.buffer, store);
    case kReadPeer:
      return take(sink, peer_source_, source + size_.read, size_.read);
    case kWritePeer:
      move(peer_source_, sink, size_.buffer, streams_ ? store : to_peers(size_.buffer, store));
      return all_out();
    case kReducePart:
      return take(source + place(comm_.rank()), peer_source_ + place(next_ + 1), nullptr, size_.part);
    case kCopyPart:
      move(source + place(comm_.rank() + 1), peer_source_ + place(next_), size_.part, store);
      return all_out();
    case kWriteStage:
      move(static_cast<std::byte*>(stage_.data()) + slot, source + offset, size_.staged,
           to_peers(size_.staged, kernels::StoreKind::kCached));
      return all_out();
    case kReadStage:
      return take((operation_.takes_whole() ? source : sink) + offset, peer_stage_ + slot, source + offset,
                  size_.staged);
    case kBarrier:
      return comm_.barrier();
    case kRing:
      return comm_.all_gather(Buffer{source_.data(), 1, DType::kF32}, Buffer{sink_.data(), comm_.size(), DType::kF32},
                              {.algorithm = "ring"});
    case kShorterMessages:
      return pass(size_.shorter);
    case kMessages:
      return pass(size_.message);
    case kKinds:
      return;
  }
}

double HostProbe::once(Kind kind, int round) {
  settle(kind, round);
  const bool copies = kind < kBarrier;
  int64_t begin_ns = 0, end_ns = 0;
  double us = 0;
  const auto timed = [&] {
    if (operation_.reduce && (kind == kReadPeer || kind == kReadStage)) wake();
    begin_ns = now_ns();
    run(kind, round);
    end_ns = now_ns();
    us = std::max(0.0, 1e-3 * static_cast<double>(end_ns - begin_ns) - clock_us_);
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
  if (!one_clock_ || (copies && (!crowded_ || kind == kAlone || here_ < comm_.size()))) {
    comm_.all_reduce(std::span(&us, 1), {.op = ReduceOp::kMax});
    return us;
  }
  // As an operation is measured, and copies by turns: from the first rank's begin to the last one's end.
  std::array<int64_t, 2> window = {-begin_ns, end_ns - std::llround(1e3 * clock_us_)};
  comm_.all_reduce(window, {.op = ReduceOp::kMax});
  return std::max(0.0, 1e-3 * static_cast<double>(window[0] + window[1]));
}

void HostProbe::sample() {
  const std::vector<std::vector<Kind>> by_turns = {
      {kAlone},   {kAll},  {kReadPeer}, {kReadOwn, kWritePeer}, {kReducePart, kCopyPart}, {kWriteStage, kReadStage},
      {kBarrier}, {kRing}, {kMessages}, {kShorterMessages}};
  for (const std::vector<Kind>& kinds : by_turns) {
    ProbeRounds rounds = kinds[0] == kWriteStage && pieces() > 1
                             ? kPieceRounds
                             : probe_rounds(memory_bytes(), each_alone_ ? comm_.size() : 1);
    // Between hosts there are fewer samples, and barriers of ranks that take turns wait for the network, too.
    if (kinds[0] == kBarrier && host_bytes_ > 0) rounds.measured *= kMoreBetweenHosts;
    // Rings that were not used for a while have left the caches: once around.
    if (kinds[0] == kMessages)
      rounds.before = std::max(rounds.before, calls_around_a_ring(comm_.size(), size_.message, operation_.rooted));
    for (int round = 0; round < rounds.before + rounds.measured; ++round) {
      for (const Kind kind : kinds) {
        const double us = measures(kind) ? once(kind, round) : 0;
        if (round >= rounds.before) us_[kind].push_back(us);
      }
    }
  }
  step_us_.push_back(step_.us());
  comm_.all_reduce(std::span(&step_us_.back(), 1), {.op = ReduceOp::kAverage});
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

// What messages take beyond the model's other terms: for each byte of one in the rings, and for each message; by turns
// a ring has told what each takes.
void HostProbe::apply_messages(Topology& topology, double us_short, double us_long) const {
  Host& host = topology.hosts[0];
  const CollectiveRequest shorter = messages(size_.shorter), longer = messages(size_.message);
  const double most = std::min(kMostFactor, us_long * host.core_bytes_per_us / static_cast<double>(size_.message));
  for (int i = 0; i < 2; ++i) {  // the second time each knows the other
    host.message_factor = fit(us_long, kLeastOfMessages, most, [&](double factor) {
      host.message_factor = factor;
      return predict_us(messages_by(), longer, topology);
    });
    if (crowded_) return;
    host.message_us = fit(us_short, 0, us_short, [&](double message_us) {
      host.message_us = message_us;
      return predict_us(messages_by(), shorter, topology);
    });
  }
}

// What the model's other terms leave over: for each turn on a core, as a barrier tells; between hosts, where turns are
// known no better than for any host, it tells how much later than alone a message is seen. And for each message, as a
// ring of them tells.
void HostProbe::apply_turns(Topology& topology, double barrier_us, double ring_us) const {
  const bool one_host = topology.hosts.size() == 1;
  if (!one_host && link_[0].empty()) return;  // a host that the topology cuts: its links stay as they are given
  CollectiveRequest request;
  request.collective = Collective::kBarrier;
  request.num_ranks = comm_.size();
  request.same_host = one_host;
  const double latency_us = topology.hosts[0].uplink.latency_us;
  const auto with_turns = [&](double us) {
    for (Host& host : topology.hosts)
      (one_host ? host.turn_us : host.uplink.latency_us) = one_host ? us : latency_us + us;
    return predict_us(barrier_, request, topology);
  };
  with_turns(fit(barrier_us, 0, barrier_us, with_turns));
  if (!one_host) return;
  request.collective = Collective::kAllGather;
  request.elements = comm_.size();
  topology.hosts[0].message_us = fit(ring_us, 0, ring_us, [&](double message_us) {
    topology.hosts[0].message_us = message_us;
    return predict_us("ring", request, topology);
  });
}

Topology HostProbe::applied_to(Topology topology, double core_ns) const {
  std::array<double, kKinds> us;
  for (size_t kind = 0; kind < kKinds; ++kind) us[kind] = std::max(1e-3, median(us_[kind]));
  const auto bytes = static_cast<double>(size_.buffer), stage = static_cast<double>(size_.staged);
  const double at_once = us[kAll] / static_cast<double>(round_up(at_once_bytes_, size_.buffer)) / 2;
  // Us a byte of own memory, with all ranks at work, or with each alone as all copies are measured then.
  const double one = each_alone_ ? us[kAlone] / bytes / 2 : at_once;
  const auto factor = [one](double us_a_byte, int own = 1) {
    return std::clamp(us_a_byte / one - own, kLeastFactor, kMostFactor);
  };
  const int own_to_take = operation_.reduce ? 2 : 1;  // passes over own memory
  const int rounds = barrier_ == "direct_signal"
                         ? 1
                         : std::max(1, static_cast<int>(std::bit_width(static_cast<unsigned>(comm_.size() - 1))));
  for (Host& host : topology.hosts) {
    host.memory_bytes_per_us = host.cached_bytes_per_us = host.ranks / at_once;
    host.core_bytes_per_us = host.cached_core_bytes_per_us = std::max(2 * bytes / us[kAlone], 1 / one);
    host.stage_write_factor = factor(us[kWriteStage] / stage);
    host.step_us = median(step_us_);
    host.call_us = 0;  // by turns, and between hosts, there is none to be seen
    // Nothing measures the links of a host that the topology cuts into several: they stay as they are given.
    if (topology.hosts.size() > 1 && !link_[0].empty()) {
      const double core_us = median(link_[3]), burst_us = median(link_[5]);
      host.uplink = {median(link_[0]), 1 / median(link_[1]), median(link_[2]), core_us > 0 ? 1 / core_us : 0};
      if (burst_us > 0) {
        host.uplink.burst_bytes = median(link_[4]);
        host.uplink.burst_bytes_per_us = std::max(host.uplink.bytes_per_us, 1 / burst_us);
      }
    } else if (!crowded_) {
      const double steps = 2 * host.step_us, round = std::max(0.0, us[kBarrier] / rounds - steps);
      host.signal_us = core_ns > 0 ? std::min(core_ns / 2e3, round) : round;
      host.call_us = std::max(0.0, us[kBarrier] - rounds * (host.signal_us + steps));
    }
    if (!have_peers_) continue;
    host.peer_read_factor = factor(us[kReadPeer] / static_cast<double>(size_.read), own_to_take);
    host.peer_write_factor = factor(us[kWritePeer] / bytes);
    if (operation_.copies_what_was_read()) {  // a sum that is slow to compute leaves nothing for it: least then
      const double read_us = one * host.peer_read_factor;
      host.shared_write_factor = factor(us[kCopyPart] / static_cast<double>(size_.part) - read_us, 0);
    }
    host.stage_read_factor = factor(us[kReadStage] / stage, own_to_take);
    host.cache_bytes = INT64_MAX / 2;  // the factors hold for this very message
  }
  if (crowded_) apply_turns(topology, us[kBarrier], us[kRing]);
  if (topology.hosts.size() == 1 && measures(kMessages)) apply_messages(topology, us[kShorterMessages], us[kMessages]);
  return topology;
}

}  // namespace herd::cli
