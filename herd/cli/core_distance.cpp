#include "herd/cli/core_distance.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "herd/comm/context.h"
#include "herd/launch/cores.h"

namespace herd::cli {
namespace {

constexpr uint64_t kRounds = 50;      // round trips in one measurement
constexpr int64_t kPageBytes = 4096;  // one page, for the word of each rank

}  // namespace

CoreDistance::CoreDistance(Communicator& comm) : comm_(comm) {
  measures_ = comm.size() > 1 && comm.size() <= launch::host_cores();
  for (Rank peer = 0; peer < comm.size(); ++peer) {
    if (peer != comm.rank()) measures_ = measures_ && comm::CommunicatorTestAccess::group(comm).channel().maps(peer);
  }
  if (measures_) memory_ = comm.allocate_symmetric(kPageBytes);
}

double CoreDistance::round_trip_ns() {
  if (!measures_) return 0;
  std::atomic<uint64_t>* words[2] = {};
  for (const comm::SymmetricRegion& region : comm::CommunicatorTestAccess::context(comm_).regions->all()) {
    if (region.memory->of(region.self) != memory_.data()) continue;
    for (int i = 0; i < 2; ++i) words[i] = reinterpret_cast<std::atomic<uint64_t>*>(region.memory->of(i));
  }
  comm_.barrier();
  if (comm_.rank() > 1) return 0;
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t first = words[comm_.rank()]->load(std::memory_order_relaxed);
  for (uint64_t round = first + 1; round <= first + kRounds; ++round) {
    if (comm_.rank() == 0) words[0]->store(round, std::memory_order_release);
    while (words[1 - comm_.rank()]->load(std::memory_order_acquire) < round) {
    }
    if (comm_.rank() == 1) words[1]->store(round, std::memory_order_release);
  }
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / kRounds;
}

}  // namespace herd::cli
