#include "herd/train/stop_signal.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

#include "herd/launch/stop_request.h"

namespace herd::train {
namespace {

constexpr size_t kNumSignals = launch::kStopSignals.size();
std::atomic<bool> stop_requested = false, training_began = false, prints_message = false;
launch::StopRequest request;  // used by the handler alone, which no other stop signal interrupts
std::array<struct sigaction, kNumSignals> previous_actions;
struct sigaction previous_pipe_action;

// This function and the next one run in the handler: they make async-signal-safe calls only.
void end_before_the_first_step(int signal_number) {
  constexpr char kText[] = "herd: stopped by a signal before the first step: nothing was trained, nothing is saved\n";
  if (prints_message) [[maybe_unused]]
    const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(128 + signal_number);
}

void on_signal(int signal_number) {
  if (!training_began) end_before_the_first_step(signal_number);
  const auto kind = request.add(launch::StopRequest::Clock::now());
  stop_requested = true;
  if (kind != launch::StopKind::kKill) return;
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

}  // namespace

StopSignal::StopSignal(bool prints) {
  stop_requested = training_began = false;
  prints_message = prints;
  request = {};
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : launch::kStopSignals) sigaddset(&action.sa_mask, signal);
  for (size_t i = 0; i < kNumSignals; ++i) {
    sigaction(launch::kStopSignals[i], nullptr, &previous_actions[i]);
    if (previous_actions[i].sa_handler != SIG_IGN) sigaction(launch::kStopSignals[i], &action, nullptr);
  }
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &previous_pipe_action);
}

StopSignal::~StopSignal() {
  for (size_t i = 0; i < kNumSignals; ++i) sigaction(launch::kStopSignals[i], &previous_actions[i], nullptr);
  sigaction(SIGPIPE, &previous_pipe_action, nullptr);
}

void StopSignal::note_first_step() { training_began = true; }

bool StopSignal::requested() { return stop_requested; }

}  // namespace herd::train
