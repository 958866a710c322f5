// Defines what this machine does with this model, measured in a few seconds before the first step, for predictions of a
// step.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/optim/optimizer.h"
#include "herd/program/simulate.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"
#include "herd/train/block_timer.h"

namespace herd::train {

// Rounds of what a step consists of: a pass over the blocks, the update, the norm and one bucket's reduction, on all
// ranks at once, so that what ranks take from each other (memory bandwidth, cores) is in the figures. Every rank gets
// the same, so that all predict the same: means over ranks, passes over blocks as long as the slowest rank's, since
// ranks that meet in a step wait for it. `ranks_here`: of this rank's host. Weights stay; gradients are void afterwards
// and states are zero, as before the first step. Collective. Takes no more memory than a step does. Uses torch's
// threads.
program::Calibration calibrate(const spec::RunFile& run, const spec::Layout& layout, BlockTimer& passes,
                               runtime::FlatParameters& parameters, const optim::Optimizer& optimizer,
                               Communicator& comm, int ranks_here);

}  // namespace herd::train
