// Gives values physical buffers that live as long as the run. Hazards are then derived on slots (op_dependencies.h), so
// a pool of k gather buffers lets at most k gathered weights exist at a time, and a gather runs ahead of its use as far
// as buffers are free: prefetching needs no op of its own.
//   received          (activations and their gradients) a slot of their pool, so that a receive waits for a place and
//                     none is posted long before its message can be sent; their memory is their own
//   gradient          a slot of its own; one that is pooled, a slot of the gradients' pool
//   gathered weights  (whole, not persistent) a slot of the weights' pool
//   shard             the slot of its whole where the whole has one of its own: it lies at its place in it. The same
//                     for persistent weights that are kept whole and as a shard
// Threads: pure.
#pragma once

#include "herd/program/program.h"

namespace herd::program {

struct SlotRules {
  int gather_buffers = 2;    // passes over blocks that weights may be gathered for at once: one more than run ahead
  int receive_buffers = 2;   // passes that messages may be received for at once
  int gradient_buffers = 2;  // the same for gradients that are being reduced while the next ones are written
};

// REQUIRES releases (lifetimes.h).
Program assign_slots(Program step, const SlotRules& rules = {});

}  // namespace herd::program
