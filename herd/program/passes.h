// Ops that run a block over a micro-batch, and what each costs. Threads: pure.
#pragma once

#include "herd/program/program.h"
#include "herd/spec/model_table.h"

namespace herd::program {

// Forward, backward, either half of a backward, recompute and loss.
bool is_pass(const Op& op);

// Of an op of `block`; nothing for an op that is no pass. Of a backward in two halves, matrices take half of their
// arithmetic for their weights; of the loss, which runs them forward as well, a third.
spec::Cost cost_of(const Op& op, const spec::BlockShape& block);

// The share of a whole backward, or a whole loss, that an op of it is.
double share_of_backward(const Op& op, const spec::BlockShape& block);

// Counts how often an op of a block runs a collective that its pass issues by itself.
int inner_runs(const spec::InnerCollective& one, const Op& op);

}  // namespace herd::program
