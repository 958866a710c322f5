// Defines what a signal that asks for a stop means, for launchers and ranks alike. The first asks to save and to stop.
// What comes within two seconds of it is the same request, said again: a terminal signals all processes of a job and so
// does the launcher, timeout(1) signals its child and then its group. One that comes later asks to end at once.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <optional>

namespace herd::launch {

// Of a user, a terminal that is closed, a batch system before its time limit. One that the process was told to ignore
// (nohup, a shell's background job) is none.
inline constexpr std::array<int, 4> kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

enum class StopWish { kSave, kSame, kEnd };

// Safe in a signal handler. Threads: one at a time.
class StopRequest {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSameRequest{2};

  StopWish add(Clock::time_point now) {
    if (!made_) {
      made_ = true;
      first_ = now;
      return StopWish::kSave;
    }
    return now - first_ < kSameRequest ? StopWish::kSame : StopWish::kEnd;
  }
  bool made() const { return made_; }

 private:
  bool made_ = false;
  Clock::time_point first_ = {};
};

}  // namespace herd::launch
