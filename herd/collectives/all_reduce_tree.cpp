#include "herd/collectives/all_reduce_tree.h"

#include <bit>

#include "herd/collectives/binomial.h"
#include "herd/collectives/segments.h"

namespace herd {
namespace {

// Returns the depth of a tree, in messages from a leaf to the root.
int depth(int num_ranks) { return std::bit_width(static_cast<unsigned>(num_ranks - 1)); }

}  // namespace

TreeNode in_order_tree(Rank rank, int n) {
  TreeNode node;
  if (rank == 0) {
    if (n > 1) node.children = {static_cast<Rank>(std::bit_floor(static_cast<unsigned>(n - 1)))};
    return node;
  }
  const int bit = rank & -rank;
  const int up = (rank ^ bit) | (bit << 1);
  node.parent = up < n ? up : rank ^ bit;
  for (int step = bit / 2; step >= 1; step /= 2) {
    if (node.children.empty()) node.children.push_back(rank - step);
    if (rank + step < n) {
      node.children.push_back(rank + step);
      break;
    }
  }
  return node;
}

TreeNode mirrored_tree(Rank rank, int n) {
  const auto to_mirrored = [n](Rank r) { return n % 2 == 0 ? n - 1 - r : (r - 1 + n) % n; };
  const auto from_mirrored = [n](Rank r) { return n % 2 == 0 ? n - 1 - r : (r + 1) % n; };
  TreeNode node = in_order_tree(to_mirrored(rank), n);
  if (node.parent >= 0) node.parent = from_mirrored(node.parent);
  for (Rank& child : node.children) child = from_mirrored(child);
  return node;
}

Schedule all_reduce_binomial_tree(const CollectiveRequest& request) {
  Builder b = builder_for(request, "binomial_tree");
  if (build_if_alone(b)) return b.finish();
  const BinomialTree tree(b.num_ranks(), 0);
  TreeNode node{b.self() == 0 ? -1 : tree.parent(b.self()), tree.children(b.self())};
  tree_pipeline(b, {node}, num_segments(request), depth(b.num_ranks()));
  return b.finish();
}

Schedule all_reduce_double_tree(const CollectiveRequest& request) {
  Builder b = builder_for(request, "double_tree");
  if (build_if_alone(b)) return b.finish();
  const std::vector<TreeNode> trees = {in_order_tree(b.self(), b.num_ranks()), mirrored_tree(b.self(), b.num_ranks())};
  tree_pipeline(b, trees, num_segments(request), depth(b.num_ranks()));
  return b.finish();
}

}  // namespace herd
