#include "herd/comm/memory_probe.h"

#include <algorithm>
#include <chrono>
#include <latch>
#include <limits>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "herd/base/elapsed.h"
#include "herd/comm/core_share.h"
#include "herd/comm/transfer.h"
#include "herd/kernels/copy.h"

namespace herd::comm {
namespace {

constexpr int kProbeTag = std::numeric_limits<int>::min() + 2;
constexpr int64_t kBytes = 1 << 20;
constexpr size_t kWarmUps = 2, kLeastRounds = 3, kRounds = 8;
constexpr std::chrono::milliseconds kEnough{5};
const OpOptions kOptions{.name = "memory probe"};

struct Times {  // us
  double cached = 0, past_cache = 0;
};

double lower_quartile(std::vector<double> us) {
  const auto quarter = us.begin() + static_cast<std::ptrdiff_t>(us.size() / 4);
  std::nth_element(us.begin(), quarter, us.end());
  return *quarter;
}

Times time_copies() {
  using kernels::StoreKind;
  std::vector<std::byte> source(kBytes, std::byte{0x5a}), target(kBytes), far(kBytes);  // zeros move faster
  std::vector<double> cached, past_cache;
  const auto timed = [](std::byte* to, const std::byte* from, StoreKind store) {
    const auto begin = std::chrono::steady_clock::now();
    kernels::copy(to, from, kBytes, store);
    return us_since(begin);
  };
  const auto until = std::chrono::steady_clock::now() + kEnough;
  for (size_t round = 0; round < kWarmUps + kRounds; ++round) {
    if (cached.size() >= kLeastRounds && std::chrono::steady_clock::now() > until) break;
    const double own = timed(target.data(), source.data(), StoreKind::kCached);
    const double away = timed(far.data(), target.data(), StoreKind::kStream);
    const double back = timed(target.data(), far.data(), StoreKind::kCached);
    if (round < kWarmUps) continue;
    cached.push_back(own);
    past_cache.push_back(away + back);
  }
  return {lower_quartile(cached), lower_quartile(past_cache)};
}

void tell(GroupState& world, Rank to, Times times) {
  send_now(world, {&times, 2, DType::kF64}, to, kProbeTag, kOptions);
}

Times heard(GroupState& world, Rank from) {
  Times times;
  receive_now(world, {&times, 2, DType::kF64}, from, kProbeTag, kOptions);
  return times;
}

Times least(const Times& a, const Times& b) {
  return {std::min(a.cached, b.cached), std::min(a.past_cache, b.past_cache)};
}

MemoryProbe probe_of(size_t ranks, const Times& alone, const Times& all) {
  return {static_cast<int>(ranks), kBytes, alone.cached, all.cached, alone.past_cache, all.past_cache};
}

std::vector<Rank> ranks_of_first_host(GroupState& world) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < world.size(); ++rank) {
    if (world.hosts().empty() || world.hosts()[static_cast<size_t>(rank)] == world.hosts()[0]) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

std::optional<MemoryProbe> probe_memory(GroupState& world) {
  std::vector<Rank> ranks = ranks_of_first_host(world);
  if (ranks.size() < 2 || std::find(ranks.begin(), ranks.end(), world.rank()) == ranks.end()) return std::nullopt;
  if (world.rank() != 0) {
    tell(world, 0, {});                             // it is there
    const bool asked = heard(world, 0).cached > 0;  // to take part
    if (asked) tell(world, 0, time_copies());
    return std::nullopt;
  }
  for (size_t i = 1; i < ranks.size(); ++i) heard(world, ranks[i]);
  const size_t cores = std::min(ranks.size(), static_cast<size_t>(cores_of_host(world.engine().transport())));
  const Times alone = cores > 1 ? time_copies() : Times{};
  for (size_t i = 1; i < ranks.size(); ++i) tell(world, ranks[i], i < cores ? alone : Times{});
  if (cores < 2) return std::nullopt;
  Times all = time_copies();
  for (size_t i = 1; i < cores; ++i) all = least(all, heard(world, ranks[i]));
  return probe_of(cores, alone, all);
}

MemoryProbe probe_memory(int threads) {
  const Times alone = time_copies();
  std::vector<Times> each(static_cast<size_t>(threads));
  std::latch together(threads);
  std::vector<std::jthread> running;
  for (Times& own : each) {
    running.emplace_back([&together, &own] {
      together.arrive_and_wait();
      own = time_copies();
    });
  }
  running.clear();  // waits for them
  return probe_of(each.size(), alone, std::accumulate(each.begin() + 1, each.end(), each[0], least));
}

}  // namespace herd::comm
