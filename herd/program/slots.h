// Gives values slots: buffers that live as long as the run. Hazards are then derived on slots (op_dependencies.h). So
// with k gather buffers at most k gathered weights exist at a time, and a gather runs ahead of its use while a buffer
// is free. Prefetching needs no op of its own. These values get slots:
//   received          Received activations have one pool of slots, received gradients of activations another. A receive
//                     waits for a free slot, so it is not posted long before its message can be sent. The slot only
//                     delays the receive; the value's memory is its own.
//   gradient          A whole gradient gets its own slot, or one of the gradients' pool if it is pooled.
//   shard of a host   A weight's shard that is not persistent gets its own slot, for it lies between other passes.
//   gathered weights  Whole weights that are not persistent get a slot of the weights' pool, and shards that are
//                     fetched for a gather one of theirs. Those that are gathered in a codec have a pool in that codec,
//                     so that gathers run ahead; what they are decoded into, right before its use, needs no buffer
//                     ahead.
//   shard             If the whole of a gradient's shard is not pooled, the shard has the whole's slot, and lies inside
//                     it at its own range. Else it gets its own slot. Weights that are kept both whole and as a shard
//                     share a slot in the same way, in any tier. So do a whole and what a rank owns of it, which is
//                     all.
//   on the host       Pooled values on the host share slots there. Two that follow each other in the step have
//                     different ones, so that one is copied while the other is worked on.
//   evicted           Activations that wait on the host or in files have a slot of a pool in each tier. That of the
//                     device only delays what fills it, as for received values: the forward that makes one waits until
//                     the one before in its slot is evicted, and a fetch until that is no longer needed.
// Threads: pure.
#pragma once

#include "herd/program/program.h"

namespace herd::program {

struct SlotRules {
  int gather_buffers = 2;    // passes over blocks that may hold gathered weights at once, the running one included
  int receive_buffers = 2;   // passes over blocks that may hold received values at once
  int gradient_buffers = 2;  // passes over blocks that may hold pooled gradients at once, those in reductions included
};

// Returns the step with a slot set in each ValueInfo, or -1. REQUIRES releases (lifetimes.h).
Program assign_slots(Program step, const SlotRules& rules = {});

}  // namespace herd::program
