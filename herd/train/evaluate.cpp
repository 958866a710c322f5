#include "herd/train/evaluate.h"

#include <algorithm>

#include "herd/program/excerpts.h"
#include "herd/train/batches.h"
#include "herd/train/peer_listener.h"

namespace herd::train {

Evaluation::Evaluation(const program::Program& step, const runtime::Chain& chain, runtime::FlatParameters& parameters,
                       const runtime::AxisGroups& groups, int64_t width)
    : bindings_(chain, parameters, groups, {}, {.training = false, .width = width}),
      executor_(program::forward_only(step), bindings_.table(), peer_listener(groups.world())) {}

std::optional<double> Evaluation::run(const SampleSource& source, Communicator& comm, const EvaluateOptions& options) {
  std::vector<double> sum_count = {0, 0};
  const int64_t samples = std::min(options.batches * options.batch, source.samples_per_epoch());
  for (int64_t first = 0; first < samples; first += options.batch) {
    const int64_t batch = std::min(options.batch, samples - first);
    bindings_.begin_step({read_micro_batches(source, first, batch, options.micro_batch, executor_.program())});
    executor_.run(first / options.batch);
    executor_.drain();
    sum_count[0] += bindings_.output().loss_sum;
    sum_count[1] += static_cast<double>(bindings_.output().count);
    if (!options.stop_requested) continue;
    std::vector<double> stop = {options.stop_requested() ? 1.0 : 0.0};
    comm.all_reduce(stop, {.name = "stop of the validation"});
    if (stop[0] > 0) return std::nullopt;
  }
  comm.all_reduce(sum_count, {.name = "validation loss"});
  return sum_count[0] / sum_count[1];
}

}  // namespace herd::train
