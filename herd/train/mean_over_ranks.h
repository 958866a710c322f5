// Averages figures that ranks measured apart.
#pragma once

#include <vector>

#include "herd/comm/communicator.h"

namespace herd::train {

// Returns the mean of every rank's figure, the same bits on all. Collective.
inline double mean_over_ranks(double figure, Communicator& comm) {
  std::vector<double> sum = {figure};
  comm.all_reduce(sum, {.name = "calibration"});
  return sum[0] / comm.size();
}

}  // namespace herd::train
