// Loss over validation samples: (sum, count) over all ranks, divided once. Ranks without samples take part with weight
// 0.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/data/sample_source.h"
#include "herd/runtime/model_bindings.h"
#include "herd/runtime/whole_weights.h"

namespace herd::train {

struct EvaluateOptions {
  int64_t batches = 8;  // of `batch` samples over all ranks: samples [0, batches * batch), or one epoch if shorter
  int64_t batch = 1;
  int64_t micro_batch = 1;  // rows of one forward
};

// Mean loss of a token, in nats. Collective: the same call on every rank, same answer on every rank.
double evaluate(const runtime::Chain& chain, runtime::WholeWeights& weights, const SampleSource& source,
                Communicator& comm, const EvaluateOptions& options);

}  // namespace herd::train
