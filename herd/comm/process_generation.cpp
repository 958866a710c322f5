#include "herd/comm/process_generation.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "herd/base/check.h"
#include "herd/base/error.h"

namespace herd::comm {
namespace {

std::atomic<uint64_t> generation{0};

void enter_child() { generation.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

uint64_t process_generation() {
  static const int failure = pthread_atfork(nullptr, nullptr, enter_child);
  HERD_CHECK(failure == 0, "pthread_atfork failed with " + std::to_string(failure));
  return generation.load(std::memory_order_relaxed);
}

OwnerProcess::OwnerProcess() : generation_(process_generation()), pid_(getpid()) {}

void OwnerProcess::refuse(const char* what) const {
  throw Error(Code::kBadConfig, std::string(what) + " was made by process " + std::to_string(pid_) + ", and process " +
                                    std::to_string(getpid()) +
                                    " is a fork of it: a rank is one process, and its peers can't tell the two apart"
                                    "\n  fix: call it only in process " +
                                    std::to_string(pid_) + ", and let the child hand its data over");
}

}  // namespace herd::comm
