// What this machine does with this model's shapes, measured in about a second, for predictions of a step.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/program/simulate.h"
#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"

namespace herd::train {

// Matrix products and attention of one micro-batch's shapes on all ranks at once; memory streams on one rank alone,
// then on all. Rank 0's figures go to every rank, so that all predict the same. Collective. Uses torch's threads.
program::Calibration calibrate(const spec::RunFile& run, const spec::Layout& layout, Communicator& comm);

}  // namespace herd::train
