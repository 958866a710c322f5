// Measures what this machine does with this model, in a few seconds before the first step, for predictions of a step.
// Threads: one, beside torch's.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/optim/optimizer.h"
#include "herd/program/simulate.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"
#include "herd/train/block_timer.h"

namespace herd::train {

// Runs rounds of the parts of a step: a pass over the blocks, the update, the norm and one bucket's reduction. All
// ranks run them at once, so the figures include what ranks cost each other (memory bandwidth, cores). Every rank
// gets the same figures. They are means over ranks, and for passes over blocks the slowest rank's, since ranks that
// meet in a step wait for it. `ranks_here` are the ranks of this rank's host. Weights stay; gradients hold garbage
// afterwards, and states are zero, as before the first step. Takes no more memory than a step does. Collective.
program::Calibration calibrate(const spec::RunFile& run, const spec::Layout& layout, BlockTimer& passes,
                               runtime::FlatParameters& parameters, const optim::Optimizer& optimizer,
                               Communicator& comm, int ranks_here);

}  // namespace herd::train
