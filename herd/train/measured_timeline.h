// Defines what really ran, as a timeline beside the predicted one: a row per lane of a rank.
#pragma once

#include "herd/runtime/executor.h"
#include "herd/sim/timeline.h"

namespace herd::train {

// Appends the ops of the executor's last step. Call drain() first. Releases are left out: they take no time.
void append_step(const runtime::Executor& executor, sim::Timeline& timeline);

// The same with its first span at 0: an executor's clock starts when it is made.
sim::Timeline from_zero(sim::Timeline timeline);

}  // namespace herd::train
