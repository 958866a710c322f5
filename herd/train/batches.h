// Reads the micro-batches of one rank and step, as tensors. B = micro_batch rows, T = context columns. data/batch.h
// says which samples they hold: a pure function of seed, sample count and rank.
// Threads: one at a time.
#pragma once

#include <memory>
#include <vector>

#include "herd/data/batch.h"
#include "herd/data/sample_source.h"
#include "herd/program/program.h"
#include "herd/runtime/model_bindings.h"

namespace herd::train {

// Returns the micro-batches of the program's rank, of a batch of `batch` samples that begins with global sample
// `first`. There are as many as in the program, of `micro_batch` rows; the last ones have no samples where the rank has
// fewer.
std::vector<runtime::Batch> read_micro_batches(const SampleSource& source, int64_t first, int64_t batch,
                                               int64_t micro_batch, const program::Program& step);

// Counts the tokens of such a batch that count in the loss, over all ranks: every target of every sample that is in the
// loss.
int64_t counted_tokens(const SampleSource& source, int64_t first, int64_t batch);

}  // namespace herd::train
