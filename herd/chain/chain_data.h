// Gives the samples that a Chain is trained on: functions from indices to named tensors. Threads: herd calls them on
// any rank and in any order, so a sample is a function of its index alone; on the thread that trains, or with
// read_ahead on one of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace herd {

// Holds samples as tensors whose first dimension counts them: row i of each is of the i-th index asked for. Floating
// tensors become of the type that strategy.precision computes with.
struct Batch {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  // How many losses count in these samples, as the chain's last block counts them; -1 = one a sample.
  int64_t count = -1;
};

// Says which sizes of a batch count tokens, where these differ between micro-batches: sequences that are padded to the
// longest one of a micro-batch, for instance.
struct TokenDimensions {
  // Every tensor and dimension of a batch that counts them, such as {"words", 1}. In one batch they have the same size.
  std::vector<std::pair<std::string, int>> dimensions = {};
  int64_t most = 1;  // tokens of the longest sample: memory is planned for micro-batches of so many
};

using ReadBatch = std::function<Batch(const std::vector<int64_t>& samples)>;

struct ChainData {
  ReadBatch read;
  int64_t samples = 0;  // samples of an epoch, which each epoch visits in another order; 0 = they never end
  // Samples that train.eval_every reads, in their order; empty = the run has no validation.
  ReadBatch read_validation = {};
  int64_t validation_samples = 0;
  // Batches that read() may be ahead of the step that trains, on a thread of its own; 0 = it reads what a step asks
  // for. That thread must not draw from torch's own generator, which blocks draw from, too.
  int read_ahead = 0;
  TokenDimensions tokens = {};  // without dimensions every batch has tensors of the same sizes, but for its samples
};

}  // namespace herd
