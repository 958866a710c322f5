#include "interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

namespace herd::python {
namespace {

constexpr std::chrono::milliseconds kGrace{100};  // for an operation that ends by itself, and Python's own handler

struct sigaction installed_before;
int interrupts = -1;   // an eventfd
pid_t watched_by = 0;  // the process whose thread reads it
pthread_t main_thread{};
std::atomic<uint64_t> waits_begun{0};  // of the main thread
std::atomic<int> waits_in_flight{0};

void on_interrupt(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(interrupts, &one, sizeof one);
  errno = error;
  if ((installed_before.sa_flags & SA_SIGINFO) != 0) {
    installed_before.sa_sigaction(signal, info, context);
  } else if (installed_before.sa_handler != SIG_IGN && installed_before.sa_handler != SIG_DFL) {
    installed_before.sa_handler(signal);
  }
}

void watch(const std::function<void()>& abort) {
  uint64_t count = 0;
  while (read(interrupts, &count, sizeof count) == sizeof count) {
    const uint64_t at = waits_begun;
    std::this_thread::sleep_for(kGrace);
    if (waits_in_flight > 0 && waits_begun == at) abort();
  }
}

bool is_main_thread() { return watched_by != 0 && pthread_equal(pthread_self(), main_thread) != 0; }

}  // namespace

void abort_waits_on_interrupt(std::function<void()> abort) {
  if (watched_by == getpid() || gettid() != getpid()) return;
  struct sigaction current = {};
  if (sigaction(SIGINT, nullptr, &current) != 0) return;
  const bool is_ours = (current.sa_flags & SA_SIGINFO) != 0 && current.sa_sigaction == on_interrupt;  // a child's
  if (!is_ours && (current.sa_handler == SIG_DFL || current.sa_handler == SIG_IGN)) return;
  interrupts = eventfd(0, EFD_CLOEXEC);
  if (interrupts < 0) return;
  main_thread = pthread_self();
  watched_by = getpid();
  waits_in_flight = 0;
  std::thread([abort = std::move(abort)] { watch(abort); }).detach();
  if (is_ours) return;
  installed_before = current;
  struct sigaction own = current;
  own.sa_flags = (current.sa_flags & ~SA_RESETHAND) | SA_SIGINFO;
  own.sa_sigaction = on_interrupt;
  sigaction(SIGINT, &own, nullptr);
}

MainThreadWait::MainThreadWait() : counts_(is_main_thread()) {
  if (!counts_) return;
  ++waits_begun;
  ++waits_in_flight;
}

MainThreadWait::~MainThreadWait() {
  if (counts_) --waits_in_flight;
}

}  // namespace herd::python
