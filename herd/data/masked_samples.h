// Samples of masked language modelling: of each sequence some tokens are hidden, and the model predicts these from all
// others. As many of each sample are chosen, anew for every one. Of the chosen ones 80 % become the mask token, 10 % a
// random token of the data, and 10 % stay as they are; the targets of all others do not count.
//   What is chosen is a pure function of seed and sample, so it is the same in every layout, and in every evaluation.
// Source: Devlin et al. 2019, arXiv:1810.04805, section 3.1; Liu et al. 2019, arXiv:1907.11692 (chosen anew each time,
// and no next sentence to predict).
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>

#include "herd/data/sample_source.h"

namespace herd {

struct Masking {
  int64_t tokens = 1;  // of a sample that are predicted
  int64_t mask_token = 0;
  uint64_t seed = 0;
};

// Takes the inputs of `source` as sequences. Random tokens are of its vocabulary. REQUIRES sequences of that many
// tokens or more, and no packed documents.
std::unique_ptr<SampleSource> masked_samples(std::unique_ptr<SampleSource> source, const Masking& masking);

}  // namespace herd
