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

// Returns the mean of the figures above 0, which are those of ranks that have measured one; 0 where none has.
// Collective.
inline double mean_of_measured(double figure, Communicator& comm) {
  std::vector<double> sum = {figure, figure > 0 ? 1.0 : 0.0};
  comm.all_reduce(sum, {.name = "calibration"});
  return sum[1] > 0 ? sum[0] / sum[1] : 0;
}

}  // namespace herd::train
