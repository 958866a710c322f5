#include "herd/launch/blocked_signals.h"

#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "herd/base/error.h"
#include "herd/launch/stop_request.h"

namespace herd::launch {
namespace {

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

BlockedSignals::BlockedSignals() {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  for (const int signal : kStopSignals) {
    if (!is_ignored(signal)) sigaddset(&blocked, signal);
  }
  pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  fd_ = signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) throw_errno(Code::kStorage, "signalfd", errno);
}

BlockedSignals::~BlockedSignals() {
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int BlockedSignals::next() {
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
  }
  return 0;
}

int BlockedSignals::next_within(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  for (;;) {
    if (const int signal = next()) return signal;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return 0;
    pollfd readable = {fd_, POLLIN, 0};
    poll(&readable, 1, static_cast<int>(left.count()));
  }
}

std::string signal_name(int signal) {
  const char* description = sigdescr_np(signal);
  return "signal " + std::to_string(signal) + " (" + (description ? description : "unknown") + ")";
}

}  // namespace herd::launch
