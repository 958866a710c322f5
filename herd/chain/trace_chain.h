// Makes the model table of a chain: runs each block once on a micro-batch, forward and backward, and counts what it
// keeps and computes. Blocks are built one after the other, so that a model larger than one rank's memory can be
// traced. Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "herd/chain/model_chain.h"
#include "herd/spec/chain_table.h"

namespace herd {

struct TraceOptions {
  DType compute_dtype = DType::kF32, gradient_dtype = DType::kF32;
  std::string frozen = "none";  // patterns of model.frozen
  int64_t samples = 2;          // samples of the larger of the two micro-batches that are traced, at least 2
  int64_t most_tokens = 1;      // tokens of each of these samples; half of them are traced, too. 1 = none are counted
};

// Returns the tensors of a micro-batch of so many samples with so many tokens each, in the order of
// Chain::batch_names(), on any samples.
using ExampleBatch = std::function<Tensors(int64_t samples, int64_t tokens)>;

// Counts bytes by the allocator of bridge/budget_allocator.h, which it installs; it lifts the budget meanwhile. Throws
// kBadConfig for a chain without blocks or without anything to train; for a loss that is not a sum and a count; for
// sizes that are no spec::Extent, naming block and tensor; and for a tensor that no block gives.
spec::ChainTable trace_chain(const Chain& chain, const ExampleBatch& example, const TraceOptions& options);

}  // namespace herd
