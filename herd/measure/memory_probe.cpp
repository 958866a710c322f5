#include "herd/measure/memory_probe.h"

#include <algorithm>
#include <chrono>
#include <latch>
#include <numeric>
#include <thread>
#include <vector>

#include "herd/base/elapsed.h"
#include "herd/kernels/copy.h"
#include "herd/measure/lower_quartile.h"

namespace herd::measure {
namespace {

constexpr int64_t kBytes = 1 << 20;  // bytes of one copy
constexpr size_t kWarmUps = 2, kMinRounds = 3, kRounds = 8;
constexpr std::chrono::milliseconds kTimeLimit{5};  // after it, kMinRounds are enough

}  // namespace

CopyTimes time_copies() {
  using kernels::WriteKind;
  // Zeros would move faster.
  std::vector<std::byte> source(kBytes, std::byte{0x5a}), target(kBytes), far(kBytes);
  std::vector<double> cached, past_cache;
  const auto timed = [](std::byte* to, const std::byte* from, WriteKind store) {
    const auto begin = std::chrono::steady_clock::now();
    kernels::copy(to, from, kBytes, store);
    return us_since(begin);
  };
  const auto until = std::chrono::steady_clock::now() + kTimeLimit;
  for (size_t round = 0; round < kWarmUps + kRounds; ++round) {
    if (cached.size() >= kMinRounds && std::chrono::steady_clock::now() > until) break;
    const double in_cache = timed(target.data(), source.data(), WriteKind::kCached);
    const double to_memory = timed(far.data(), target.data(), WriteKind::kStream);
    const double from_memory = timed(target.data(), far.data(), WriteKind::kCached);
    if (round < kWarmUps) continue;
    cached.push_back(in_cache);
    past_cache.push_back(to_memory + from_memory);
  }
  return {lower_quartile(cached), lower_quartile(past_cache)};
}

CopyTimes least_of(const CopyTimes& a, const CopyTimes& b) {
  return {std::min(a.cached, b.cached), std::min(a.past_cache, b.past_cache)};
}

MemoryProbe memory_probe_of(size_t ranks, const CopyTimes& alone, const CopyTimes& all) {
  return {static_cast<int>(ranks), kBytes, alone.cached, all.cached, alone.past_cache, all.past_cache};
}

MemoryProbe probe_memory(int threads) {
  const CopyTimes alone = time_copies();
  std::vector<CopyTimes> each(static_cast<size_t>(threads));
  std::latch start(threads);
  std::vector<std::jthread> workers;
  for (CopyTimes& own : each) {
    workers.emplace_back([&start, &own] {
      start.arrive_and_wait();
      own = time_copies();
    });
  }
  workers.clear();  // joins the threads
  return memory_probe_of(each.size(), alone, std::accumulate(each.begin() + 1, each.end(), each[0], least_of));
}

}  // namespace herd::measure
