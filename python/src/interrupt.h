// Ctrl-C ends a wait inside herd. Python runs its handler of SIGINT only between two of its own instructions, so a
// thread that waits in C++ would not hear of it before the operation's deadline. Threads: any.
#pragma once

#include <functional>

namespace herd::python {

// Has `abort` called, on a thread of herd's, where SIGINT comes while the main thread is in a MainThreadWait and it is
// still there a moment later. The handler that is installed runs as well. One that Python installs later replaces this.
// Does nothing on other threads than the main one, or where SIGINT is ignored or ends the process.
void abort_waits_on_interrupt(std::function<void()> abort);

// Marks a wait of the main thread; does nothing on others.
class MainThreadWait {
 public:
  MainThreadWait();
  ~MainThreadWait();
  MainThreadWait(const MainThreadWait&) = delete;
  MainThreadWait& operator=(const MainThreadWait&) = delete;

 private:
  const bool counts_;
};

}  // namespace herd::python
