// Runs a body on ranks as threads and collects what each of them threw.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/inproc_world.h"

namespace herd::testing_support {

// By rank; kBug "nothing" where it threw nothing.
inline std::vector<Error> errors_of(int n, const std::function<void(Communicator&)>& body) {
  std::vector<Error> errors(static_cast<size_t>(n), Error(Code::kBug, "nothing"));
  std::atomic<int> ended{0};
  run_inproc(n, [&](Communicator& comm) {
    try {
      body(comm);
    } catch (const Error& error) {
      errors[static_cast<size_t>(comm.rank())] = error;
    }
    ++ended;  // nobody leaves before all have failed, so that nobody fails of the leaving
    while (ended.load() < n) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  return errors;
}

}  // namespace herd::testing_support
