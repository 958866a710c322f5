// Names the tensors of a mixture of experts as transformers stores them: those of each expert apart. Newer versions of
// transformers hold the experts of a layer in one tensor, and still store them so. Threads: pure.
#pragma once

#include "herd/convert/transformers_format.h"

namespace herd::convert {

struct MixtureNames {
  std::string_view mixture;         // before all names of a layer's mixture: "mlp."
  std::string_view gate, up, down;  // of an expert
  std::string_view shared = {};     // before the names of shared experts; empty where the format has none
};

// Returns the tensors whose rows, one below the other, are those of the weight. Names of what is no mixture are
// Llama's.
std::vector<StoredTensor> mixture_tensors(const Weight& weight, const spec::RunFile::Model& model,
                                          const MixtureNames& names);

}  // namespace herd::convert
