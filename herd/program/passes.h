// Tells which ops run a block over a micro-batch, what each costs, and what copies move. Threads: pure.
#pragma once

#include "herd/program/program.h"
#include "herd/spec/block_shape.h"

namespace herd::program {

// Tells whether an op is a forward, a backward, either half of a backward, a recompute, a loss or logits.
bool is_pass(const Op& op);

// Returns the micro-batch that a pass, or a collective of activations, works on; -1 for an op of no micro-batch.
int micro_batch_of(const Op& op);

// Returns the cost of an op of `block`; zero for an op that is no pass. kBackwardWeight takes half of the matrix FLOP
// of a backward. Of the matrix FLOP of a loss, which also runs forward, it takes a third.
spec::PassCost cost_of(const Op& op, const spec::BlockShape& block);

// Returns the share of a whole backward, or of a whole loss, that an op does; 1 for an op that is not split.
double share_of_backward(const Op& op, const spec::BlockShape& block);

// Returns the bytes that a pass reads of weights on the host; 0 where all its weights are on the device.
int64_t direct_bytes(const Program& step, const Op& op, const spec::BlockShape& block);

// Returns the bytes that a fetch or an evict copies: of what it reads, or of a piece of it where it takes only that.
int64_t copied_bytes(const Program& step, const Op& op);

// Returns how many times the op runs this collective, which the block's code calls itself, so that it is no op.
int runs_of_inner_collective(const spec::InnerCollective& collective, const Op& op);

}  // namespace herd::program
