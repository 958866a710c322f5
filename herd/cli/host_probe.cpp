#include "herd/cli/host_probe.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <span>

#include "herd/base/median.h"
#include "herd/comm/context.h"
#include "herd/kernels/copy.h"

namespace herd::cli {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kLeastBytes = 16 << 10, kMostBytes = 32 << 20, kStageBytes = 512 << 10;
constexpr int kBarriers = 8;

double now_us() { return std::chrono::duration<double, std::micro>(steady_clock::now().time_since_epoch()).count(); }

// Where `rank` of the group has its part of the memory in this process.
std::byte* part_of_rank(Communicator& comm, const SymmetricMemory& memory, Rank rank) {
  for (const comm::SymmetricRegion& region : comm::Access::context(comm).regions->all()) {
    if (region.memory->of(region.self) == memory.data()) return region.memory->of(rank);
  }
  return nullptr;
}

}  // namespace

HostProbe::HostProbe(Communicator& comm, int64_t message_bytes)
    : comm_(comm),
      streams_(message_bytes >= comm::CompiledSchedule::kStreamBytes),
      // Out of place a rank has its part and the whole: two buffers like these take as much.
      bytes_(round_up(std::clamp(message_bytes * (comm.size() + 1) / (2 * comm.size()), kLeastBytes, kMostBytes),
                      kPageBytes)),
      stage_bytes_(std::min(bytes_, kStageBytes)),
      sink_(SharedMemory::create("herd:probe", bytes_)),
      source_(comm.allocate_symmetric(bytes_)),
      stage_(comm.allocate_symmetric(stage_bytes_)) {
  sink_.commit(0, bytes_);
  std::memset(sink_.data(), 0, static_cast<size_t>(bytes_));
  here_ = 0;
  Rank next = -1;
  for (int i = 0; i < comm.size(); ++i) {
    const Rank rank = (comm.rank() + i) % comm.size();
    if (!comm::Access::group(comm).channel().maps(rank)) continue;
    ++here_;
    if (next < 0 && i > 0) next = rank;
    if (rank < comm.rank()) first_here_ = false;
  }
  if (next < 0) return;
  peer_source_ = part_of_rank(comm, source_, next);
  peer_stage_ = part_of_rank(comm, stage_, next);
}

void HostProbe::copy(Kind kind) {
  auto* const source = static_cast<std::byte*>(source_.data());
  auto* const stage = static_cast<std::byte*>(stage_.data());
  const auto move = [](std::byte* to, const std::byte* from, int64_t bytes, bool stream) {
    void* const targets[] = {to};
    kernels::copy(targets, from, bytes, stream ? kernels::StoreKind::kStream : kernels::StoreKind::kCached);
  };
  switch (kind) {
    case kAlone:
      if (first_here_) move(sink_.data(), source, bytes_, streams_);
      return;
    case kAll:
      return move(sink_.data(), source, bytes_, streams_);
    case kReadPeer:
      return move(sink_.data(), peer_source_, bytes_, streams_);
    case kWritePeer:
      return move(peer_source_, sink_.data(), bytes_, streams_);
    case kWriteStage:
      return move(stage, source, stage_bytes_, true);
    case kReadStage:
      return move(sink_.data(), peer_stage_, stage_bytes_, streams_);
    case kBarrier:
      for (int i = 0; i < kBarriers; ++i) comm_.barrier();
      return;
    case kKinds:
      return;
  }
}

double HostProbe::once(Kind kind) {
  // As before an operation: each owner has just written its memory.
  if (kind != kReadStage) std::memset(source_.data(), 1, static_cast<size_t>(bytes_));
  comm_.barrier();
  const double begin = now_us();
  copy(kind);
  double us = now_us() - begin;
  if (kind == kAlone || here_ < comm_.size()) {
    comm_.all_reduce(std::span(&us, 1), {.op = ReduceOp::kMax});
    return us;
  }
  // Ranks that take turns on a core: from the first one's begin to the last one's end, by the host's one clock.
  std::array<double, 2> window = {-begin, begin + us};
  comm_.all_reduce(window, {.op = ReduceOp::kMax});
  us = window[0] + window[1];
  return us;
}

// In memory that the kind before has not just thrown out of the cache: as it is in repetitions of an operation.
double HostProbe::measure(Kind kind) {
  once(kind);
  return once(kind);
}

void HostProbe::sample() {
  for (int kind = 0; kind < kKinds; ++kind) {
    const bool peers = kind == kReadPeer || kind == kWritePeer || kind == kReadStage;
    double us = 0;
    if (!peers || peer_source_ != nullptr) us = measure(static_cast<Kind>(kind));
    us_[static_cast<size_t>(kind)].push_back(us);
  }
}

Topology HostProbe::applied_to(Topology topology, double core_ns) const {
  std::array<double, kKinds> us;
  for (size_t kind = 0; kind < kKinds; ++kind) us[kind] = std::max(1e-3, median(us_[kind]));
  const auto bytes = static_cast<double>(bytes_), stage = static_cast<double>(stage_bytes_);
  const double one = us[kAll] / bytes / 2;  // us a byte of own memory, with all ranks at work
  const double all = static_cast<double>(here_) / one;
  const auto factor = [one](double us_a_byte) { return std::max(0.3, us_a_byte / one - 1); };
  const int rounds = std::max(1, static_cast<int>(std::bit_width(static_cast<unsigned>(comm_.size() - 1))));
  const double barrier = us[kBarrier] / kBarriers;
  for (Host& host : topology.hosts) {
    host.memory_bytes_per_us = host.cached_bytes_per_us = all;
    host.core_bytes_per_us = host.cached_core_bytes_per_us = std::max(2 * bytes / us[kAlone], 1 / one);
    host.stage_write_factor = factor(us[kWriteStage] / stage);
    const double round = std::max(0.0, barrier / rounds - 2 * host.step_us);
    if (topology.hosts.size() > 1) {
      host.uplink.latency_us = round;
    } else {
      host.signal_us = core_ns > 0 ? std::min(core_ns / 2e3, round) : round;
      host.call_us = std::max(0.0, barrier - rounds * (host.signal_us + 2 * host.step_us));
    }
    if (peer_source_ == nullptr) continue;
    host.peer_read_factor = factor(us[kReadPeer] / bytes);
    host.peer_write_factor = factor(us[kWritePeer] / bytes);
    host.stage_read_factor = factor(us[kReadStage] / stage);
    host.cache_bytes = INT64_MAX / 2;  // the factors hold for this very message
  }
  return topology;
}

}  // namespace herd::cli
