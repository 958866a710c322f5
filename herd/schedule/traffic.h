// Defines what a schedule moves, counted from its steps. Threads: pure.
#pragma once

#include <cstdint>
#include <span>

#include "herd/schedule/schedule.h"

namespace herd {

// Bytes that this rank sends: its messages, and what it reads from or writes to a peer's memory.
int64_t bytes_sent(const Schedule& schedule);

// The longest chain of messages and signals that follow each other, over all ranks: the steps of an algorithm, each of
// which costs a latency. REQUIRES schedules that verify() passes.
int num_rounds(std::span<const Schedule> all_ranks);

// Messages this rank sends, plus signals.
int num_messages(const Schedule& schedule);

}  // namespace herd
