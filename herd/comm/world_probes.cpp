#include "herd/comm/world_probes.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "herd/base/elapsed.h"
#include "herd/comm/core_share.h"
#include "herd/comm/transfer.h"
#include "herd/measure/link_probe.h"
#include "herd/measure/memory_probe.h"

namespace herd::comm {
namespace {

using measure::CopyTimes;

constexpr int kLinkTag = std::numeric_limits<int>::min() + 1, kMemoryTag = std::numeric_limits<int>::min() + 2;
const OpOptions kMemoryOptions{.name = "memory probe"};

std::span<std::byte> bytes_of(auto& value) { return std::as_writable_bytes(std::span(&value, 1)); }

// Carries probes point to point between two ranks of the world.
class GroupWire final : public measure::ProbeWire {
 public:
  GroupWire(GroupState& world, Rank peer) : world_(world), peer_(peer) {}
  void send(std::span<std::byte> bytes) override { send_now(world_, buffer(bytes), peer_, kLinkTag, options_); }
  void receive(std::span<std::byte> bytes) override { receive_now(world_, buffer(bytes), peer_, kLinkTag, options_); }
  // The receive is posted first, as collectives do, and this thread moves both.
  void exchange(std::span<std::byte> out, std::span<std::byte> in) override {
    PendingOp receiving, sending;
    fill_transfer(receiving, world_, PendingOpKind::kReceive, buffer(in), peer_, kLinkTag, options_);
    fill_transfer(sending, world_, PendingOpKind::kSend, buffer(out), peer_, kLinkTag, options_);
    world_.engine().run_both(receiving, sending);
  }
  double now_us() override { return herd::now_us(); }

 private:
  static Buffer buffer(std::span<std::byte> bytes) {
    return {bytes.data(), static_cast<int64_t>(bytes.size()), DType::kU8};
  }

  GroupState& world_;
  Rank peer_;
  OpOptions options_ = {.name = "link probe"};
};

// Returns the first rank of each host.
std::vector<Rank> first_ranks(const std::vector<int>& hosts) {
  std::vector<Rank> first;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] == static_cast<int>(first.size())) first.push_back(static_cast<Rank>(rank));
  }
  return first;
}

void send_times(GroupState& world, Rank to, CopyTimes times) {
  send_now(world, {&times, 2, DType::kF64}, to, kMemoryTag, kMemoryOptions);
}

CopyTimes receive_times(GroupState& world, Rank from) {
  CopyTimes times;
  receive_now(world, {&times, 2, DType::kF64}, from, kMemoryTag, kMemoryOptions);
  return times;
}

std::vector<Rank> ranks_of_first_host(GroupState& world) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < world.size(); ++rank) {
    if (world.hosts().empty() || world.hosts()[static_cast<size_t>(rank)] == world.hosts()[0]) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

std::optional<Link> probe_links(GroupState& world) {
  const std::vector<Rank> first = first_ranks(world.hosts());
  if (first.size() < 2) return std::nullopt;
  std::vector<std::pair<Rank, Rank>> pairs;  // the rank that measures, and the rank that answers
  for (size_t host = 0; host + 1 < first.size(); host += 2) pairs.push_back({first[host], first[host + 1]});
  if (first.size() % 2 != 0) pairs.push_back({first.back(), first[first.size() - 2]});
  Link slowest;
  for (const auto& [measurer, responder] : pairs) {
    if (world.rank() == responder) {
      GroupWire wire(world, measurer);
      measure::answer_probe(wire);
    }
    if (world.rank() != measurer) continue;
    GroupWire wire(world, responder);
    slowest = measure::time_link(wire);
    if (measurer != 0) GroupWire(world, 0).send(bytes_of(slowest));
  }
  if (world.rank() != 0) return std::nullopt;
  for (size_t i = 1; i < pairs.size(); ++i) {
    Link reported;
    GroupWire(world, pairs[i].first).receive(bytes_of(reported));
    slowest = measure::slower(slowest, reported);
  }
  return slowest;
}

std::optional<measure::MemoryProbe> probe_memory(GroupState& world) {
  std::vector<Rank> ranks = ranks_of_first_host(world);
  if (ranks.size() < 2 || std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) return std::nullopt;
  if (world.rank() != 0) {
    send_times(world, 0, {});                                    // this rank has arrived
    const bool takes_part = receive_times(world, 0).cached > 0;  // rank 0 sends zeros to ranks that do not
    if (takes_part) send_times(world, 0, measure::time_copies());
    return std::nullopt;
  }
  for (size_t i = 1; i < ranks.size(); ++i) receive_times(world, ranks[i]);
  const size_t cores = std::min(ranks.size(), static_cast<size_t>(cores_for_ranks_of_host(world.engine().transport())));
  const CopyTimes one_rank = cores > 1 ? measure::time_copies() : CopyTimes{};
  for (size_t i = 1; i < ranks.size(); ++i) send_times(world, ranks[i], i < cores ? one_rank : CopyTimes{});
  if (cores < 2) return std::nullopt;
  CopyTimes all_ranks = measure::time_copies();
  for (size_t i = 1; i < cores; ++i) all_ranks = measure::least_of(all_ranks, receive_times(world, ranks[i]));
  return measure::memory_probe_of(cores, one_rank, all_ranks);
}

}  // namespace herd::comm
