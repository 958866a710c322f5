// Evaluates the equations of one pipeline stage: what its rank holds, and how long its step takes. Threads: pure.
#pragma once

#include "herd/planner/cluster.h"
#include "herd/planner/collective_cost_model.h"
#include "herd/planner/partitioned_model_internal.h"
#include "herd/planner/prediction.h"

namespace herd::planner {

// Returns the share of a pipeline's time in which a stage has nothing to do.
double idle_share(const PartitionedModel& cut);

// Counts the micro-batches of a stage whose graphs, and whose halves of a backward, wait in memory at one time.
struct InFlight {
  double graphs = 1, pending = 0;
};
// REQUIRES an order of one stage a rank that has a name.
InFlight in_flight_of(const spec::RunFile& run, const spec::Layout& layout, int stage);

// Sets device, host and nvme.
//   standing    weights, gradients, states: psi bytes each, cut over N = fsdp (or dp) ranks by the ZeRO stage
//   pools       whole weights and gradients of the blocks at work, where they are cut
//   activations what blocks keep for each micro-batch in flight, and the most that the backward pass adds to it
void add_memory(const PartitionedModel& cut, int stage, Prediction& out);

// Returns the bytes that a block keeps of one micro-batch from its forward to its backward.
double kept_bytes(const PartitionedModel& cut, size_t b);

// Add two parts of it for any blocks of one stage; the second returns the scratch of the op at the peak.
void add_standing(const PartitionedModel& cut, const BlockInterval& blocks, const Visits& uses, Prediction& out);
double add_activations(const PartitionedModel& cut, const BlockInterval& blocks, const InFlight& in_flight,
                       Prediction& out);

// Sets flops, compute_us, sent and step_us.
//   step        (m forward and backward passes) / (1 - bubble) + communication that nothing hides + update
void add_time(const PartitionedModel& cut, int stage, const Cluster& cluster, const CollectiveCostModel& cost,
              Prediction& out);

}  // namespace herd::planner
