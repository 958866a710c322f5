// Records what ran, as a timeline to compare with the predicted one: a row per lane of a rank. Threads: one at a time.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/runtime/executor.h"
#include "herd/sim/timeline.h"

namespace herd::train {

inline constexpr int kMaxTracedRanks = 64;  // later ranks are in no trace: nobody reads that many rows

// Returns the ops of the executor's last step, without releases, which take no time; the first begins at 0. REQUIRES
// executor.drain() before.
sim::Timeline last_step(const runtime::Executor& executor);

// Returns the timelines of ranks 0 .. kMaxTracedRanks-1 below each other on rank 0, and an empty one elsewhere. Each
// counts from its own begin: ranks begin a step within the time of a small all-reduce. Collective.
sim::Timeline gather_timelines(const sim::Timeline& mine, Communicator& comm);

// Appends a later timeline, `shift_us` after the begin of the first.
void append(sim::Timeline& to, const sim::Timeline& later, double shift_us);

}  // namespace herd::train
