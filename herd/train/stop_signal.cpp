#include "herd/train/stop_signal.h"

#include <csignal>
#include <ctime>

namespace herd::train {
namespace {

volatile std::sig_atomic_t stop_requested = 0;
timespec first_request;
struct sigaction before_int, before_term;

// A terminal signals every process of the job and the launcher passes the signal on: what comes within two seconds is
// the same request. Only async-signal-safe calls.
void on_signal(int signal_number) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const double since_s = static_cast<double>(now.tv_sec - first_request.tv_sec) +
                         1e-9 * static_cast<double>(now.tv_nsec - first_request.tv_nsec);
  if (stop_requested && since_s >= 2) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return;
  }
  if (!stop_requested) first_request = now;
  stop_requested = 1;
}

}  // namespace

StopSignal::StopSignal() {
  stop_requested = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_int);
  sigaction(SIGTERM, &action, &before_term);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &before_int, nullptr);
  sigaction(SIGTERM, &before_term, nullptr);
}

bool StopSignal::requested() { return stop_requested != 0; }

}  // namespace herd::train
