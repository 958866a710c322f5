// Declares the single checks of herd doctor, by theme.
#pragma once

#include <vector>

#include "herd/cli/doctor.h"

namespace herd::cli {

void look_at_processor(std::vector<Finding>& findings);
void look_at_memory(std::vector<Finding>& findings, bool measure);
void look_at_gpus(std::vector<Finding>& findings);
void look_at_kernel(std::vector<Finding>& findings);
void look_at_programs(std::vector<Finding>& findings);

}  // namespace herd::cli
