// Gives values physical buffers that live as long as the run. Hazards are then derived on slots (dependencies.h), so a
// pool of k gather buffers lets at most k gathered weights exist at a time.
// Threads: pure.
#pragma once

#include "herd/program/program.h"

namespace herd::program {

struct SlotRules {
  int gather_buffers = 2;  // of weights that are gathered before use; more where more are in use at once
};

// Each gradient gets a slot of its own. Gathered weights (form full, not persistent) share the pool: a value takes the
// slot that was free longest among those it never overlaps in program order. REQUIRES releases (lifetimes.h).
Program assign_slots(Program step, const SlotRules& rules = {});

}  // namespace herd::program
