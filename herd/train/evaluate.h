// Loss over validation samples: (sum, count) over all ranks, divided once. Ranks without samples take part with
// weight 0.
#pragma once

#include <functional>
#include <optional>

#include "herd/comm/communicator.h"
#include "herd/data/sample_source.h"
#include "herd/runtime/model_bindings.h"
#include "herd/runtime/whole_weights.h"

namespace herd::train {

struct EvaluateOptions {
  int64_t batches = 8;  // of `batch` samples over all ranks: samples [0, batches * batch), or one epoch if shorter
  int64_t batch = 1;
  int64_t micro_batch = 1;  // rows of one forward
  // Asked on every rank after each batch: where any says yes, the evaluation ends there on all. Empty = runs to its
  // end.
  std::function<bool()> stop_requested = {};
};

// Mean loss of a token, in nats; nothing where it was stopped. Collective: the same call on every rank, the same answer
// on every rank.
std::optional<double> evaluate(const runtime::Chain& chain, runtime::WholeWeights& weights, const SampleSource& source,
                               Communicator& comm, const EvaluateOptions& options);

}  // namespace herd::train
