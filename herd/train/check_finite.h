// Refuses tensors of a checkpoint that hold NaN or infinity, before a run trains on them. Threads: one at a time.
#pragma once

#include <string>
#include <vector>

#include "herd/checkpoint/named_tensor.h"

namespace herd::train {

// Throws kBadConfig that names the first tensor with such an element, how many this rank has of it, and where the first
// one is in the global tensor. `source` names the checkpoint. Passes over tensors of integers.
void check_finite(const std::vector<NamedTensor>& tensors, const std::string& source);

}  // namespace herd::train
