// The micro-batches of one rank and step, as tensors.      B = micro_batch rows, T = context columns
// Which samples they hold is data/batch.h's rule: a pure function of seed, sample count and rank.
// Threads: one at a time.
#pragma once

#include <memory>
#include <vector>

#include "herd/data/batch.h"
#include "herd/data/sample_source.h"
#include "herd/runtime/model_bindings.h"

namespace herd::train {

// Micro-batches of the batch of `batch` samples that begins with global sample `first`; every rank gets the same
// number.
std::vector<runtime::Batch> read_batches(const SampleSource& source, int64_t first, int64_t batch, int64_t micro_batch,
                                         Rank rank, int ranks);

// Tokens of such a batch that count in the loss, over all ranks: every target of every sample.
int64_t counted_tokens(const SampleSource& source, int64_t batch);

}  // namespace herd::train
