// Builds an all-reduce up and down trees, in segments; each rank knows its own nodes.   Threads: pure.
#pragma once

#include <vector>

#include "herd/schedule/builder.h"

namespace herd {

struct TreeNode {
  Rank parent = -1;  // -1: the root
  std::vector<Rank> children = {};
};

// Adds the steps of this rank. trees[i] is its node in the tree that carries the i-th equal share of the message. Each
// segment's sum goes up, in the order own + children, and comes down `lag` segments later. So segments overlap: none
// waits until the one before it is back. REQUIRES the same number of trees, segments and lag on all ranks.
void tree_pipeline(Builder& builder, const std::vector<TreeNode>& trees, int segments, int lag);

}  // namespace herd
