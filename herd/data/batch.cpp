#include "herd/data/batch.h"

#include <algorithm>

#include "herd/base/check.h"

namespace herd {

SampleRange samples_of_rank(int64_t first, int64_t batch, Rank rank, int ranks) {
  HERD_CHECK(rank >= 0 && rank < ranks, "rank of the group");
  HERD_CHECK_GE(batch, 0);
  return {first + rank * batch / ranks, first + (rank + 1) * batch / ranks};
}

int64_t num_micro_batches(int64_t batch, int64_t micro_batch, int ranks) {
  HERD_CHECK(micro_batch >= 1 && ranks >= 1, "micro_batch >= 1 and ranks >= 1");
  const int64_t largest_share = (batch + ranks - 1) / ranks;
  return (largest_share + micro_batch - 1) / micro_batch;
}

int64_t MicroBatch::counted_targets() const {
  return std::count_if(targets_BT.begin(), targets_BT.end(), [](int64_t target) { return target != kIgnoredTarget; });
}

void read_micro_batch(const SampleSource& source, SampleRange range, int64_t micro_batch, int64_t m, MicroBatch& out) {
  const auto rows = static_cast<size_t>(micro_batch), columns = static_cast<size_t>(source.context());
  out.rows = micro_batch;
  out.context = source.context();
  out.inputs_BT.assign(rows * columns, 0);
  out.targets_BT.assign(rows * columns, kIgnoredTarget);
  out.weights_B.assign(rows, 0.0f);
  out.samples_B.assign(rows, -1);
  out.document_begins.clear();
  for (size_t row = 0; row < rows; ++row) {
    const int64_t sample = range.begin + m * micro_batch + static_cast<int64_t>(row);
    const auto first = static_cast<int64_t>(row * columns);
    if (sample >= range.end) {
      if (source.packs_documents()) out.document_begins.push_back(first);
      continue;
    }
    SampleRow read{std::span(out.inputs_BT).subspan(row * columns, columns),
                   std::span(out.targets_BT).subspan(row * columns, columns)};
    source.read_row(sample, read);
    for (const int64_t begin : read.document_begins) out.document_begins.push_back(first + begin);
    out.weights_B[row] = 1.0f;
    out.samples_B[row] = sample;
  }
}

}  // namespace herd
