// Fills the tensors of a run with weights of any format and precision (convert/weight_source.h).
// Threads: one at a time per source.
#pragma once

#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/convert/weight_source.h"

namespace herd::train {

// Gives each tensor its elements of the weight of its name, converted to its type. A tensor of positions may have fewer
// rows than the weights: it takes the first ones. Throws kBadConfig, before any tensor is touched, where a weight is
// missing or of another shape, and as convert::read_slice().
void take_weights(convert::WeightSource& source, std::vector<NamedTensor>& tensors);

}  // namespace herd::train
