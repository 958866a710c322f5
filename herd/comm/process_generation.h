// Tells a process from the children that it forks. A child inherits the communicators of its parent, sockets and shared
// memory included, but it is no rank: it must neither use them nor close them, for the peers would take that for the
// parent's doing. Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace herd::comm {

// Returns a number that differs between a process and each process that it was forked from. Costs a load.
uint64_t process_generation();

// Makes an object that only this process destroys. A forked child leaks it, since destructors take locks, join threads
// and tell peers that this rank leaves.
template <typename T, typename... Args>
std::shared_ptr<T> make_shared_of_process(Args&&... args) {
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), [made_in = process_generation()](T* object) {
    if (made_in == process_generation()) delete object;
  });
}

// Remembers the process that makes it.
class OwnerProcess {
 public:
  OwnerProcess();
  // Throws kBadConfig in a forked child; `what` is the subject of its sentence.
  void check(const char* what) const {
    if (generation_ != process_generation()) refuse(what);
  }

 private:
  [[noreturn]] void refuse(const char* what) const;
  uint64_t generation_;
  int pid_;
};

}  // namespace herd::comm
