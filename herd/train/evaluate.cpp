#include "herd/train/evaluate.h"

#include <algorithm>

#include "herd/nn/run_block.h"
#include "herd/train/batches.h"

namespace herd::train {

std::optional<double> evaluate(const runtime::Chain& chain, runtime::WholeWeights& weights, const SampleSource& source,
                               Communicator& comm, const EvaluateOptions& options) {
  std::vector<double> sum_count = {0, 0};
  auto& loss_block = dynamic_cast<nn::LossBlock&>(*chain.back());
  const int64_t samples = std::min(options.batches * options.batch, source.samples_per_epoch());
  for (int64_t first = 0; first < samples; first += options.batch) {
    const int64_t batch = std::min(options.batch, samples - first);
    for (const auto& rows : read_batches(source, first, batch, options.micro_batch, comm.rank(), comm.size())) {
      nn::Context context;
      nn::Tuple x = {rows.inputs_BT};
      for (size_t b = 0; b + 1 < chain.size(); ++b) {
        context.layer = static_cast<int>(b);
        weights.take(*chain[b]);
        x = nn::run_without_graph(*chain[b], x, context);
        weights.give_back(*chain[b]);
      }
      weights.take(loss_block);
      context.layer = static_cast<int>(chain.size()) - 1;
      const nn::LossResult result = loss_block.loss(x, rows.targets_BT, context, false);
      weights.give_back(loss_block);
      sum_count[0] += result.sum;
      sum_count[1] += static_cast<double>(result.count);
    }
    if (!options.stop_requested) continue;
    std::vector<double> stop = {options.stop_requested() ? 1.0 : 0.0};
    comm.all_reduce(stop, {.name = "stop of the validation"});
    if (stop[0] > 0) return std::nullopt;
  }
  comm.all_reduce(sum_count, {.name = "validation loss"});
  return sum_count[0] / sum_count[1];
}

}  // namespace herd::train
