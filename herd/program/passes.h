// Tells which ops run a block over a micro-batch, and what each costs. Threads: pure.
#pragma once

#include "herd/program/program.h"
#include "herd/spec/block_shape.h"

namespace herd::program {

// True for forward, backward, either half of a backward, recompute, loss and logits.
bool is_pass(const Op& op);

// Returns the cost of an op of `block`; zero for an op that is no pass. Gradients of weights take half of the
// arithmetic of a backward's matrices, and a third of the loss's, which runs them forward as well.
spec::PassCost cost_of(const Op& op, const spec::BlockShape& block);

// Returns the share of a whole backward, or of a whole loss, that an op does; 1 for either as a whole.
double share_of_backward(const Op& op, const spec::BlockShape& block);

// Counts how often an op of a block runs a collective that its pass issues by itself.
int inner_runs(const spec::InnerCollective& one, const Op& op);

}  // namespace herd::program
