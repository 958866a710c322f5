// Ranks as processes that die, and what they leave behind.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/communicator.h"
#include "herd/comm/fork_world.h"

namespace herd::testing_support {

inline int entries_of(const std::string& folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

inline const std::string kLate = "noticed only after ";

// Rank 1 of two tells rank 0 the time, waits for `pause` and is killed; throws on rank 0 unless that hears of it in a
// barrier, `limit` after the time told.
inline void notice_a_kill(Communicator& comm, std::chrono::milliseconds pause, std::chrono::milliseconds limit) {
  using std::chrono::steady_clock;
  std::vector<int64_t> when = {0};
  if (comm.rank() == 1) {
    when[0] = steady_clock::now().time_since_epoch().count();
    comm.send(when, 0, 1);
    std::this_thread::sleep_for(pause);
    std::raise(SIGKILL);
  }
  comm.receive(when, 1, 1);
  try {
    comm.barrier();
  } catch (const Error& error) {
    const auto late = steady_clock::now() - steady_clock::time_point(steady_clock::duration(when[0]));
    if (error.code() != Code::kPeerLost) throw;
    if (late <= limit) return;
    throw std::runtime_error(kLate + std::to_string(late / std::chrono::milliseconds(1)) + " ms");
  }
  throw std::runtime_error("a barrier with a dead rank ended well");
}

// What rank 0 says of it; empty where it noticed in time. A late one is tried again, ten times in all: other programs
// may have held the cores.
inline std::string error_of_a_kill(std::chrono::milliseconds pause, std::chrono::milliseconds limit,
                                   const WorldOptions& options = {}) {
  std::string error;
  for (int times = 0; times < 10; ++times) {
    ForkWorld world(
        2, [=](Communicator& comm) { notice_a_kill(comm, pause, limit); }, options);
    error = world.wait()[0].error;
    if (!error.starts_with(kLate)) break;
  }
  return error;
}

}  // namespace herd::testing_support
