// Defines what a signal that asks for a stop means, for launchers and ranks alike. The first asks to save and to stop.
// A signal within two seconds of it is the same request: a terminal and the launcher both signal all processes of a
// job. timeout(1) signals its child and then its group. A later one asks to end at once.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <optional>

namespace herd::launch {

// A user, a closed terminal, or a batch system before its time limit sends these. A signal that the process was told to
// ignore (nohup, a shell's background job) asks for nothing.
inline constexpr std::array<int, 4> kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

enum class StopKind {
  kSave,      // the first request: save, then stop
  kRepeated,  // the same request again, which changes nothing
  kKill,      // a later request: end at once
};

// Tells what each signal asks for; it is safe in a signal handler. Threads: one at a time.
class StopRequest {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSameRequest{2};

  StopKind add(Clock::time_point now) {
    if (!made_) {
      made_ = true;
      first_ = now;
      return StopKind::kSave;
    }
    return now - first_ < kSameRequest ? StopKind::kRepeated : StopKind::kKill;
  }
  bool made() const { return made_; }

 private:
  bool made_ = false;
  Clock::time_point first_ = {};
};

}  // namespace herd::launch
