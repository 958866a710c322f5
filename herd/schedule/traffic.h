// Counts what a schedule moves, from its steps. Threads: pure.
#pragma once

#include <cstdint>
#include <span>

#include "herd/schedule/schedule.h"

namespace herd {

// Returns the bytes that this rank sends: its messages, and what it reads from or writes to a peer's memory.
int64_t bytes_sent(const Schedule& schedule);

// Returns the length of the longest chain of messages and signals that follow each other, over all ranks; each of them
// costs a latency. REQUIRES schedules that verify() passes.
int num_rounds(std::span<const Schedule> all_ranks);

// Counts the messages and signals that this rank sends.
int num_messages_and_signals(const Schedule& schedule);

}  // namespace herd
