#include "herd/train/stop_signal.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

#include "herd/launch/stop_request.h"

namespace herd::train {
namespace {

constexpr size_t kTaken = launch::kStopSignals.size();
std::atomic<bool> stop_requested = false, trains = false, says_it = false;
launch::StopRequest request;  // of the handler, which no other signal of these interrupts
std::array<struct sigaction, kTaken> before;
struct sigaction before_pipe;

// Here and below: only async-signal-safe calls.
void end_before_the_first_step(int signal_number) {
  constexpr char kText[] = "herd: stopped by a signal before the first step: nothing was trained, nothing is saved\n";
  if (says_it) [[maybe_unused]]
    const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(128 + signal_number);
}

void on_signal(int signal_number) {
  if (!trains) end_before_the_first_step(signal_number);
  const auto kind = request.add(launch::StopRequest::Clock::now());
  stop_requested = true;
  if (kind != launch::StopKind::kKill) return;
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

}  // namespace

StopSignal::StopSignal(bool says) {
  stop_requested = trains = false;
  says_it = says;
  request = {};
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : launch::kStopSignals) sigaddset(&action.sa_mask, signal);
  for (size_t i = 0; i < kTaken; ++i) {
    sigaction(launch::kStopSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(launch::kStopSignals[i], &action, nullptr);
  }
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &before_pipe);
}

StopSignal::~StopSignal() {
  for (size_t i = 0; i < kTaken; ++i) sigaction(launch::kStopSignals[i], &before[i], nullptr);
  sigaction(SIGPIPE, &before_pipe, nullptr);
}

void StopSignal::first_step_begins() { trains = true; }

bool StopSignal::requested() { return stop_requested; }

}  // namespace herd::train
