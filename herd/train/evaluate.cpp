#include "herd/train/evaluate.h"

#include <algorithm>

#include "herd/program/excerpts.h"
#include "herd/train/peer_listener.h"

namespace herd::train {

Evaluation::Evaluation(const program::Program& step, const runtime::Chain& chain, runtime::FlatParameters& parameters,
                       const runtime::AxisGroups& groups, const runtime::ModelBindings::Options& training)
    : bindings_(chain, parameters, groups, {},
                {.training = false, .seed = training.seed, .width = training.width, .table = training.table}),
      executor_(program::forward_only(step), bindings_.table(), peer_listener(groups.world()),
                bindings_.lanes_of(step)) {}

std::optional<Validation> Evaluation::run(const Samples& samples, Communicator& comm, const EvaluateOptions& options) {
  std::vector<double> sums(2 + options.figures);  // of the losses, of how many count, and of each figure
  program::Program step = executor_.program();
  const std::vector<int> ranks = options.ranks.empty() ? std::vector<int>{step.rank} : options.ranks;
  int64_t passes = 0;
  const int64_t count = std::min(options.batches * options.batch, samples.per_epoch());
  for (int64_t first = 0; first < count; first += options.batch) {
    const int64_t batch = std::min(options.batch, count - first);
    for (const int rank : ranks) {
      step.rank = rank;
      bindings_.begin_step(samples.read(first, batch, options.micro_batch, step));
      executor_.run(passes++);
      executor_.drain();
      const runtime::StepOutput& output = bindings_.output();
      sums[0] += output.loss_sum;
      sums[1] += static_cast<double>(output.count);
      for (size_t i = 0; i < output.figures.size(); ++i) sums.at(2 + i) += output.figures[i];
    }
    if (!options.stop_requested) continue;
    std::vector<double> stop = {options.stop_requested() ? 1.0 : 0.0};
    comm.all_reduce(stop, {.name = "stop of the validation"});
    if (stop[0] > 0) return std::nullopt;
  }
  comm.all_reduce(sums, {.name = "validation loss"});
  Validation mean{.loss = sums[0] / sums[1]};
  for (size_t i = 2; i < sums.size(); ++i) mean.figures.push_back(sums[i] / sums[1]);
  return mean;
}

}  // namespace herd::train
