// Computes the loss, and figures of an own chain, over validation samples: (sum, count) over all ranks, divided once.
// Ranks without samples take part with weight 0. Threads: one at a time.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/runtime/executor.h"
#include "herd/runtime/model_bindings.h"
#include "herd/train/model_source.h"

namespace herd::train {

struct EvaluateOptions {
  // Number of batches, each of `batch` samples over all ranks. The evaluation reads samples [0, batches * batch), or
  // one epoch if that is shorter.
  int64_t batches = 8;
  int64_t batch = 1;        // samples of one batch over all ranks, as many as a step of the program takes
  int64_t micro_batch = 1;  // rows of one forward
  size_t figures = 0;       // further sums that the last block gives
  // Ranks of the program's mesh whose samples this rank reads, so that some evaluate for all. Empty = its own.
  std::vector<int> ranks = {};
  // Every rank asks this after each batch; where any rank answers true, the evaluation ends there on all. Empty =
  // never.
  std::function<bool()> stop_requested = {};
};

// Holds means over the samples that count, the same on every rank.
struct Validation {
  double loss = 0;                   // of a token, in nats
  std::vector<double> figures = {};  // of Chain::report(), in its order
};

// Runs the forward passes and the loss of a step's program (program/excerpts.h) between two steps, in the step's
// memory.
class Evaluation {
 public:
  // Borrows all but the program. Takes the shapes of activations, and the seed, from the options of training.
  Evaluation(const program::Program& step, const runtime::Chain& chain, runtime::FlatParameters& parameters,
             const runtime::AxisGroups& groups, const runtime::ModelBindings::Options& training);

  // Returns nothing where it was stopped. Collective: every rank makes the same call and gets the same result. REQUIRES
  // no step in flight.
  std::optional<Validation> run(const Samples& samples, Communicator& comm, const EvaluateOptions& options);

 private:
  runtime::ModelBindings bindings_;
  runtime::Executor executor_;
};

}  // namespace herd::train
