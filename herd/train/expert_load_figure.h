// Draws how many tokens the experts of each layer got over the steps of a run. Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "herd/storage/metrics.h"

namespace herd::train {

// Returns HTML: a row for each expert of each layer, or for each layer where these would be too many; a column for one
// or several steps. Empty where no step has a load. The loads are of the model's layers from `first_layer` on.
std::string expert_load_figure(const std::vector<StepMetrics>& metrics, int64_t first_layer);

}  // namespace herd::train
