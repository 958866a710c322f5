// Records what ran, as a timeline to compare with the predicted one: a row per lane of a rank. Threads: one at a time.
#pragma once

#include "herd/runtime/executor.h"
#include "herd/sim/timeline.h"

namespace herd::train {

// Appends the ops of the executor's last step, without releases, which take no time. REQUIRES executor.drain() before.
void append_step(const runtime::Executor& executor, sim::Timeline& timeline);

// Shifts a timeline so that its first span begins at 0; an executor's clock starts when it is made.
sim::Timeline from_zero(sim::Timeline timeline);

}  // namespace herd::train
