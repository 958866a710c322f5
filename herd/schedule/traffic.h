// What a schedule moves, counted from its steps. Threads: pure.
#pragma once

#include <cstdint>

#include "herd/schedule/schedule.h"

namespace herd {

// Bytes that this rank sends: its messages, and what it reads from or writes to a peer's memory.
int64_t bytes_sent(const Schedule& schedule);

// Messages this rank sends, plus signals.
int num_messages(const Schedule& schedule);

}  // namespace herd
