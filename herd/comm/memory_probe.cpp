#include "herd/comm/memory_probe.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "herd/base/log.h"
#include "herd/comm/core_share.h"
#include "herd/comm/transfer.h"
#include "herd/kernels/copy.h"

namespace herd::comm {
namespace {

constexpr int kProbeTag = std::numeric_limits<int>::min() + 2;
constexpr int64_t kBytes = 1 << 20;
constexpr int kRounds = 12;
constexpr int kLooks = 64;  // for a peer, before the core is offered to others
constexpr std::chrono::milliseconds kLimit{15};
const OpOptions kOptions{.name = "memory probe"};

enum Kind { kAlone, kAll, kWriteStage, kReadStage, kKinds };
using Times = std::array<double, kKinds>;  // us; 0: given up

SteadyTime now() { return std::chrono::steady_clock::now(); }

// What a rank shows the others, in the first copy of its stage. What they copy lies in the second.
struct Sign {
  std::atomic<uint64_t> meetings;  // it has come to
  std::atomic<int> core;           // it runs on
};

class Prober {
 public:
  Prober(GroupState& world, std::vector<Rank> ranks)
      : transport_(world.engine().transport()),
        channel_(world.channel()),
        ranks_(std::move(ranks)),
        self_(std::find(ranks_.begin(), ranks_.end(), world.rank()) - ranks_.begin()),
        private_(kBytes),
        own_(channel_.stage(world.rank(), 1)),
        peer_(channel_.stage(ranks_[(self_ + 1) % ranks_.size()], 1)) {
    sign(world.rank()).meetings.store(0, std::memory_order_relaxed);
    sign(world.rank()).core.store(sched_getcpu(), std::memory_order_relaxed);
  }

  // Once all have made theirs.
  Times run() {
    limit_ = now() + kLimit;
    part();
    Times times;
    times.fill(std::numeric_limits<double>::max());
    for (int round = 0; round <= kRounds; ++round) {
      for (size_t kind = 0; kind < kKinds; ++kind) {
        if (!meet()) return {};
        const SteadyTime begin = now();
        copy(static_cast<Kind>(kind));
        const double took = std::chrono::duration<double, std::micro>(now() - begin).count();
        if (round > 0) times[kind] = std::min(times[kind], took);  // the first brings pages and caches
      }
    }
    return times;
  }

 private:
  Sign& sign(Rank rank) const { return *reinterpret_cast<Sign*>(channel_.stage(rank, 0)); }

  // Ranks that were just started may share a core while another has nothing to do: until they have gone apart.
  void part() {
    const auto share = [&](Rank a, Rank b) {
      return a != b && sign(a).core.load(std::memory_order_relaxed) == sign(b).core.load(std::memory_order_relaxed);
    };
    const SteadyTime until = now() + kLimit / 5;
    for (bool shared = true; shared && now() < until;) {
      sign(channel_.rank()).core.store(sched_getcpu(), std::memory_order_relaxed);
      shared = false;
      for (const Rank a : ranks_) {
        shared = shared || std::any_of(ranks_.begin(), ranks_.end(), [&](Rank b) { return share(a, b); });
      }
      if (shared) transport_.offer_core(true);
    }
  }

  // All have come as often; false: too late.
  bool meet() {
    sign(channel_.rank()).meetings.store(++met_, std::memory_order_release);
    for (const Rank other : ranks_) {
      for (int looks = 1; sign(other).meetings.load(std::memory_order_acquire) < met_; ++looks) {
        if (looks % kLooks != 0) continue;
        if (now() > limit_) return false;
        transport_.offer_core(true);
      }
    }
    return true;
  }

  void copy(Kind kind) {
    const auto move = [](std::byte* to, const std::byte* from, kernels::StoreKind store) {
      kernels::copy(to, from, kBytes, store);
    };
    switch (kind) {
      case kAlone:
        if (self_ == 0) move(private_.data(), own_, kernels::StoreKind::kCached);
        return;
      case kAll:
        return move(private_.data(), own_, kernels::StoreKind::kCached);
      case kWriteStage:
        return move(own_ + kBytes, private_.data(), kernels::StoreKind::kStream);
      case kReadStage:
        return move(private_.data(), peer_ + kBytes, kernels::StoreKind::kCached);
      case kKinds:
        return;
    }
  }

  transport::Transport& transport_;
  transport::Channel& channel_;
  std::vector<Rank> ranks_;  // that take part
  size_t self_;              // of them
  std::vector<std::byte> private_;
  std::byte *own_, *peer_;
  SteadyTime limit_;
  uint64_t met_ = 0;
};

std::vector<Rank> ranks_of_first_host(GroupState& world) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < world.size(); ++rank) {
    if (world.hosts().empty() || world.hosts()[static_cast<size_t>(rank)] == world.hosts()[0]) ranks.push_back(rank);
  }
  return ranks;
}

// Words between rank 0 and one of the others.
void tell(GroupState& world, Rank to, std::span<double> words) {
  send_now(world, {words.data(), static_cast<int64_t>(words.size()), DType::kF64}, to, kProbeTag, kOptions);
}
void hear(GroupState& world, Rank from, std::span<double> words) {
  receive_now(world, {words.data(), static_cast<int64_t>(words.size()), DType::kF64}, from, kProbeTag, kOptions);
}

// As rank 0 asks it to.
void answer(GroupState& world, std::vector<Rank> ranks) {
  double taking_part = 0, go = 0;
  hear(world, 0, std::span(&taking_part, 1));
  ranks.resize(static_cast<size_t>(taking_part));
  if (std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) return;
  Prober prober(world, std::move(ranks));
  tell(world, 0, std::span(&go, 1));
  hear(world, 0, std::span(&go, 1));
  Times times = prober.run();
  tell(world, 0, times);  // from here on nobody looks at this rank's stage: rank 0 goes on when all have said so
}

// Rank 0's part.
std::optional<MemoryProbe> ask(GroupState& world, std::vector<Rank> ranks) {
  const auto cores = static_cast<size_t>(cores_of_host(world.engine().transport()));
  double taking_part = static_cast<double>(std::min(ranks.size(), cores)), ready = 0;
  for (size_t i = 1; i < ranks.size(); ++i) tell(world, ranks[i], std::span(&taking_part, 1));
  ranks.resize(static_cast<size_t>(taking_part));
  if (ranks.size() < 2) return std::nullopt;
  Prober prober(world, ranks);
  for (size_t i = 1; i < ranks.size(); ++i) hear(world, ranks[i], std::span(&ready, 1));
  for (size_t i = 1; i < ranks.size(); ++i) tell(world, ranks[i], std::span(&ready, 1));
  Times least = prober.run(), times;
  bool given_up = least[kAll] == 0;
  for (size_t i = 1; i < ranks.size(); ++i) {
    hear(world, ranks[i], times);
    given_up = given_up || times[kAll] == 0;
    for (size_t kind = kAll; kind < kKinds; ++kind) least[kind] = std::min(least[kind], times[kind]);
  }
  if (given_up) {
    log::info("memory was not timed, since ranks waited for their cores: algorithms are chosen for a usual host");
    return std::nullopt;
  }
  return MemoryProbe{static_cast<int>(ranks.size()), kBytes, least[kAlone], least[kAll],
                     least[kWriteStage] + least[kReadStage]};
}

}  // namespace

std::optional<MemoryProbe> probe_memory(GroupState& world) {
  std::vector<Rank> ranks = ranks_of_first_host(world);
  const bool here = std::find(ranks.begin(), ranks.end(), world.rank()) != ranks.end();
  if (ranks.size() < 2 || !here || world.channel().stage_bytes() < 2 * kBytes) return std::nullopt;
  if (world.rank() == 0) return ask(world, std::move(ranks));
  answer(world, std::move(ranks));
  return std::nullopt;
}

}  // namespace herd::comm
