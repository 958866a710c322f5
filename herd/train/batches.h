// The micro-batches of one rank and step, as tensors.      B = micro_batch rows, T = context columns
// Which samples they hold is data/batch.h's rule: a pure function of seed, sample count and rank.
// Threads: one at a time.
#pragma once

#include <memory>
#include <vector>

#include "herd/data/batch.h"
#include "herd/data/sample_source.h"
#include "herd/program/program.h"
#include "herd/runtime/model_bindings.h"

namespace herd::train {

// What the program's rank works on of the batch of `batch` samples that begins with global sample `first`: as many
// micro-batches as the program has, of `micro_batch` rows, the last ones of them without samples where it has fewer.
std::vector<runtime::Batch> read_batches(const SampleSource& source, int64_t first, int64_t batch, int64_t micro_batch,
                                         const program::Program& step);

// Tokens of such a batch that count in the loss, over all ranks: every target of every sample.
int64_t counted_tokens(const SampleSource& source, int64_t batch);

}  // namespace herd::train
