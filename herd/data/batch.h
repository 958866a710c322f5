// Decides which samples a rank trains on in a step, and reads them as micro-batches of ids.
// `batch` counts the sequences of an optimizer step over all ranks.
// Optimizer step t consumes global samples [t * batch, (t + 1) * batch); rank r of n takes floor or ceil of batch / n:
//   [t * batch + floor(r * batch / n), t * batch + floor((r + 1) * batch / n))
// and runs ceil(ceil(batch / n) / micro_batch) micro-batches, the same number on every rank. Rows beyond a rank's
// samples have weight 0 and targets kIgnoredTarget, so they add nothing to (sum, count) of the loss. Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/base/ids.h"
#include "herd/data/sample_source.h"

namespace herd {

struct SampleRange {
  int64_t begin, end;
};  // global samples [begin, end)

// Returns the samples of one rank in the step that starts at global sample `first`.
SampleRange samples_of_rank(int64_t first, int64_t batch, Rank rank, int ranks);
int64_t num_micro_batches(int64_t batch, int64_t micro_batch, int ranks);

// B = micro_batch rows, T = context columns; vectors are B x T, row-major.
struct MicroBatch {
  int64_t rows = 0, context = 0;
  std::vector<int64_t> inputs_BT;
  std::vector<int64_t> targets_BT;  // kIgnoredTarget where the row has weight 0, and in padding
  std::vector<float> weights_B;     // 1 or 0
  std::vector<int64_t> samples_B;   // global index of each row (random numbers are keyed by it), -1 for weight 0
  // Places among the B x T tokens at which documents begin, in order; empty where the source packs none.
  std::vector<int64_t> document_begins;
  int64_t counted_targets() const;  // counts the targets that are in the loss
};

// Reads micro-batch m of a rank whose samples are `range`: its rows are samples from range.begin + m * micro_batch on.
// Reuses the memory of `out`.
void read_micro_batch(const SampleSource& source, SampleRange range, int64_t micro_batch, int64_t m, MicroBatch& out);

}  // namespace herd
