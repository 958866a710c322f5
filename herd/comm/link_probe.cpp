#include "herd/comm/link_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <vector>

#include "herd/base/elapsed.h"
#include "herd/comm/transfer.h"

namespace herd::comm {
namespace {

using std::chrono::steady_clock;

constexpr int kTag = std::numeric_limits<int>::min() + 1;
constexpr size_t kMinPings = 4, kMaxPings = 60;
constexpr double kPingsUs = 3000, kLongUs = 4000;
constexpr int kTries = 2;  // of the size that is long enough: one that was interrupted looks long, and is not
constexpr int64_t kFirstBytes = 64 << 10, kLastBytes = 4 << 20;

// One end of a probe.
class End {
 public:
  End(GroupState& world, Rank peer) : world_(world), peer_(peer) {}

  LinkProbe ask() {
    LinkProbe probe{short_us(), 0, 0};
    std::array<double, 2> took = {0, 0};  // us: the whole message, its second half
    int64_t bytes = kFirstBytes / 2;
    double half_us = 0;
    for (int tries = 0; tries < kTries;) {
      if (tries == 0) bytes *= 2;
      send(&bytes, 1, DType::kI64);
      std::vector<std::byte> half(static_cast<size_t>(bytes / 2));
      for (int i = 0; i < 2; ++i) send(half.data(), bytes / 2, DType::kU8);
      receive(took.data(), 2, DType::kF64);
      half_us = tries == 0 ? took[1] : std::min(half_us, took[1]);
      tries = took[0] >= kLongUs || bytes == kLastBytes ? tries + 1 : 0;
    }
    int64_t end = 0;
    send(&end, 1, DType::kI64);
    probe.long_bytes = bytes / 2;
    probe.long_us = probe.short_us + std::max(half_us, 1e-3);
    return probe;
  }

  void answer() {
    for (int64_t again = 1; again != 0;) {
      receive(&again, 1, DType::kI64);
      send(&again, 1, DType::kI64);
    }
    while (true) {
      int64_t bytes = 0;
      receive(&bytes, 1, DType::kI64);
      if (bytes == 0) return;
      std::vector<std::byte> half(static_cast<size_t>(bytes / 2));
      const auto begin = steady_clock::now();
      receive(half.data(), bytes / 2, DType::kU8);
      const auto middle = steady_clock::now();
      receive(half.data(), bytes / 2, DType::kU8);
      const double whole_us = us_since(begin), half_us = us_since(middle);
      // A rank that was interrupted in the first half finds the second one there already.
      std::array<double, 2> took = {whole_us, std::max(half_us, whole_us / 2)};
      send(took.data(), 2, DType::kF64);
    }
  }

 private:
  double short_us() {
    std::vector<double> us;
    const auto begin = steady_clock::now();
    for (int64_t again = 1; again != 0;) {
      again = us.size() < kMinPings || (us.size() < kMaxPings && us_since(begin) < kPingsUs);
      const auto sent = steady_clock::now();
      send(&again, 1, DType::kI64);
      receive(&again, 1, DType::kI64);
      us.push_back(us_since(sent) / 2);
    }
    us.erase(us.begin());  // it made the connection
    std::sort(us.begin(), us.end());
    return us[us.size() / 4];
  }

  void send(void* data, int64_t count, DType dtype) {
    send_now(world_, {data, count, dtype}, peer_, kTag, {.name = "link probe"});
  }
  void receive(void* data, int64_t count, DType dtype) {
    receive_now(world_, {data, count, dtype}, peer_, kTag, {.name = "link probe"});
  }

  GroupState& world_;
  Rank peer_;
};

// The first rank of each host.
std::vector<Rank> first_ranks(const std::vector<int>& hosts) {
  std::vector<Rank> first;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] == static_cast<int>(first.size())) first.push_back(static_cast<Rank>(rank));
  }
  return first;
}

}  // namespace

std::optional<LinkProbe> probe_links(GroupState& world) {
  const std::vector<Rank> first = first_ranks(world.hosts());
  if (first.size() < 2) return std::nullopt;
  std::vector<std::pair<Rank, Rank>> pairs;  // who asks, who answers
  for (size_t host = 0; host + 1 < first.size(); host += 2) pairs.push_back({first[host], first[host + 1]});
  if (first.size() % 2 != 0) pairs.push_back({first.back(), first[first.size() - 2]});
  std::optional<LinkProbe> slowest;
  for (const auto& [asks, answers] : pairs) {
    LinkProbe probe;
    if (world.rank() == answers) End(world, asks).answer();
    if (world.rank() == asks) probe = End(world, answers).ask();
    std::array<double, 3> said = {probe.short_us, probe.long_us, static_cast<double>(probe.long_bytes)};
    if (world.rank() == asks && asks != 0) send_now(world, {said.data(), 3, DType::kF64}, 0, kTag, {});
    if (world.rank() == 0) slowest = slowest ? slowest : probe;
  }
  if (world.rank() != 0) return std::nullopt;
  for (size_t i = 1; i < pairs.size(); ++i) {
    std::array<double, 3> said = {};
    receive_now(world, {said.data(), 3, DType::kF64}, pairs[i].first, kTag, {});
    const double rate = said[2] / (said[1] - said[0]),
                 least = static_cast<double>(slowest->long_bytes) / (slowest->long_us - slowest->short_us);
    const double bytes = std::min(rate, least) * 1e3;  // in a millisecond
    slowest->short_us = std::max(slowest->short_us, said[0]);
    slowest->long_bytes = static_cast<int64_t>(bytes);
    slowest->long_us = slowest->short_us + 1e3;
  }
  return slowest;
}

}  // namespace herd::comm
