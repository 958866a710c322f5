// All-reduce up and down trees whose nodes every rank knows for itself, in segments: as a building block.
// Threads: pure.
#pragma once

#include <vector>

#include "herd/schedule/builder.h"

namespace herd {

struct TreeNode {
  Rank parent = -1;  // -1: the root
  std::vector<Rank> children = {};
};

// One tree for each equal share of the message, this rank's node in each of them. Each segment's sum goes up, in the
// order own + children, and comes down `lag` segments later, so that none waits for a whole way there and back.
// REQUIRES the same number of trees, segments and lag on all ranks.
void tree_pipeline(Builder& builder, const std::vector<TreeNode>& trees, int segments, int lag);

}  // namespace herd
