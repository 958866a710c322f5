// Loss over validation samples: (sum, count) over all ranks, divided once. Ranks without samples take part with
// weight 0.
#pragma once

#include <functional>
#include <optional>

#include "herd/comm/communicator.h"
#include "herd/data/sample_source.h"
#include "herd/runtime/executor.h"
#include "herd/runtime/model_bindings.h"

namespace herd::train {

struct EvaluateOptions {
  int64_t batches = 8;      // of `batch` samples over all ranks: samples [0, batches * batch), or one epoch if shorter
  int64_t batch = 1;        // that of a step, which the program's micro-batches hold
  int64_t micro_batch = 1;  // rows of one forward
  // Asked on every rank after each batch: where any says yes, the evaluation ends there on all. Empty = runs to its
  // end.
  std::function<bool()> stop_requested = {};
};

// Runs the losses of a step's program (program/excerpts.h) between two steps, on the memory of the step.
class Evaluation {
 public:
  // Borrows all but the program. `width`: ModelBindings::Options.
  Evaluation(const program::Program& step, const runtime::Chain& chain, runtime::FlatParameters& parameters,
             const runtime::AxisGroups& groups, int64_t width);

  // Mean loss of a token, in nats; nothing where it was stopped. Collective: the same call on every rank, the same
  // answer on every rank. REQUIRES no step in flight.
  std::optional<double> run(const SampleSource& source, Communicator& comm, const EvaluateOptions& options);

 private:
  runtime::ModelBindings bindings_;
  runtime::Executor executor_;
};

}  // namespace herd::train
