// Chains of own blocks drawn by chance: 5 to 12 blocks with branches and skips, whose tensors differ in shape and type.
// One in four has tensors whose tokens differ between micro-batches.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "herd/chain/chain_data.h"
#include "herd/chain/model_chain.h"

namespace herd::train {

struct RandomChain {
  Chain chain;
  ChainData data;               // samples that never end
  std::string frozen = "none";  // patterns for model.frozen
  std::string text;             // what was drawn
};

// Multiplies the sizes of what blocks pass on by `scale`, so that a pass keeps more than its weights take.
RandomChain random_own_chain(std::mt19937& random, int64_t scale = 1);

}  // namespace herd::train
