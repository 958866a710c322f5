// Runs what follows an operation's end: callbacks of futures, and the release of tensors. None of it may run on herd's
// progress thread: a callback may issue operations and wait for them, and a tensor's end may need Python's lock.
// There is one executor per process, which outlives everything. It starts a thread when all others are busy, and a
// thread ends after some idle seconds. Threads: any.
#pragma once

#include <functional>

namespace herd::pytorch {

void run_later(std::function<void()> job);

}  // namespace herd::pytorch
