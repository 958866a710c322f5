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

// Over the world's lanes, point to point.
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

// The first rank of each host.
std::vector<Rank> first_ranks(const std::vector<int>& hosts) {
  std::vector<Rank> first;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] == static_cast<int>(first.size())) first.push_back(static_cast<Rank>(rank));
  }
  return first;
}

void tell(GroupState& world, Rank to, CopyTimes times) {
  send_now(world, {&times, 2, DType::kF64}, to, kMemoryTag, kMemoryOptions);
}

CopyTimes heard(GroupState& world, Rank from) {
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
  std::vector<std::pair<Rank, Rank>> pairs;  // who asks, who answers
  for (size_t host = 0; host + 1 < first.size(); host += 2) pairs.push_back({first[host], first[host + 1]});
  if (first.size() % 2 != 0) pairs.push_back({first.back(), first[first.size() - 2]});
  Link slowest;
  for (const auto& [asks, answers] : pairs) {
    if (world.rank() == answers) {
      GroupWire wire(world, asks);
      measure::answer_probe(wire);
    }
    if (world.rank() != asks) continue;
    GroupWire wire(world, answers);
    slowest = measure::time_link(wire);
    if (asks != 0) GroupWire(world, 0).send(bytes_of(slowest));
  }
  if (world.rank() != 0) return std::nullopt;
  for (size_t i = 1; i < pairs.size(); ++i) {
    Link said;
    GroupWire(world, pairs[i].first).receive(bytes_of(said));
    slowest = measure::slower(slowest, said);
  }
  return slowest;
}

std::optional<measure::MemoryProbe> probe_memory(GroupState& world) {
  std::vector<Rank> ranks = ranks_of_first_host(world);
  if (ranks.size() < 2 || std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) return std::nullopt;
  if (world.rank() != 0) {
    tell(world, 0, {});                             // it is there
    const bool asked = heard(world, 0).cached > 0;  // to take part
    if (asked) tell(world, 0, measure::time_copies());
    return std::nullopt;
  }
  for (size_t i = 1; i < ranks.size(); ++i) heard(world, ranks[i]);
  const size_t cores = std::min(ranks.size(), static_cast<size_t>(cores_of_host(world.engine().transport())));
  const CopyTimes alone = cores > 1 ? measure::time_copies() : CopyTimes{};
  for (size_t i = 1; i < ranks.size(); ++i) tell(world, ranks[i], i < cores ? alone : CopyTimes{});
  if (cores < 2) return std::nullopt;
  CopyTimes all = measure::time_copies();
  for (size_t i = 1; i < cores; ++i) all = measure::least_of(all, heard(world, ranks[i]));
  return measure::memory_probe_of(cores, alone, all);
}

}  // namespace herd::comm
