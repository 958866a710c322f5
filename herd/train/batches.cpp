#include "herd/train/batches.h"

#include <ATen/ops/from_blob.h>

namespace herd::train {
namespace {

// Makes a matrix on the host's heap. The device holds the micro-batches that a step has loaded, not the whole batch.
at::Tensor matrix(const std::vector<int64_t>& values, int64_t rows, int64_t columns) {
  const auto kept = std::make_shared<std::vector<int64_t>>(values);
  return at::from_blob(
      kept->data(), {rows, columns}, [kept](void*) {}, at::kLong);
}

}  // namespace

std::vector<runtime::Batch> read_micro_batches(const SampleSource& source, int64_t first, int64_t batch,
                                               int64_t micro_batch, const program::Program& step) {
  const auto samples = samples_of_rank(first, batch, step.data_place(), step.data_ranks());
  std::vector<runtime::Batch> batches;
  MicroBatch micro;
  for (int64_t m = 0; m < step.micro_batches; ++m) {
    read_micro_batch(source, samples, micro_batch, m, micro);
    batches.push_back({.inputs_BT = matrix(micro.inputs_BT, micro.rows, micro.context),
                       .targets_BT = matrix(micro.targets_BT, micro.rows, micro.context),
                       .samples = micro.samples_B,
                       .document_begins = micro.document_begins});
  }
  return batches;
}

int64_t counted_tokens(const SampleSource& source, int64_t first, int64_t batch) {
  int64_t count = 0;
  for (int64_t sample = first; sample < first + batch; ++sample) count += source.targets_of(sample);
  return count;
}

}  // namespace herd::train
