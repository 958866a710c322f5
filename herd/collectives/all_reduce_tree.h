// All-reduce up and down trees (n ranks, S message bytes; segments as segments.h cuts them).
//   binomial_tree  one binomial tree, rank 0 its root.  Steps 2*ceil(log2 n) for one segment.  Sent: up to
//                  ceil(log2 n) * S by the root, 2(n-1) * S by all together.
//   double_tree    two binary trees, each for one half of the message, in which nobody but rank 0 is an inner node
//                  twice.  At most 2S bytes sent per rank, about 2*log2(n) latencies and 2S / bandwidth for many
//                  segments.
//   Order: own + children, nearest first, at every inner node.  Extra memory: none.
// Source: Thakur, Rabenseifner & Gropp 2005, doi:10.1177/1094342005051521 (binomial); Sanders, Speck & Traff 2009,
// doi:10.1016/j.parco.2009.09.001 (two trees).   Threads: pure.
#pragma once

#include "herd/collectives/request.h"
#include "herd/collectives/tree_pipeline.h"

namespace herd {

Schedule all_reduce_binomial_tree(const CollectiveRequest& request);
Schedule all_reduce_double_tree(const CollectiveRequest& request);

// Returns a rank's node in a binary tree over ranks 0 .. n-1. A rank r > 0 with lowest set bit b is the parent of
// r - b/2, and of the first of r + b/2, r + b/4, .. that is below n. Odd ranks are leaves. Rank 0 is the root and the
// parent of the largest power of two below n.
TreeNode in_order_tree(Rank rank, int num_ranks);
// Returns the rank's node in the same tree over mirrored (n even) or shifted (n odd) ranks, so that inner nodes become
// leaves.
TreeNode mirrored_tree(Rank rank, int num_ranks);

}  // namespace herd
