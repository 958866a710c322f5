#include "herd/collectives/tree_pipeline.h"

namespace herd {
namespace {

// Adds the children's sums to this rank's input, in the output, and sends the sum to the parent.
void add_up(Builder& b, const TreeNode& node, Range range) {
  Slice held = b.input(range);
  for (const Rank child : node.children) {
    const bool last = node.parent < 0 && child == node.children.back();
    b.receive_reduce(child, b.output(range), held, last ? Sum::kComplete : Sum::kPartial);
    held = b.output(range);
  }
  if (node.parent >= 0) b.send(node.parent, held);
}

// Passes the complete sum from the parent to the children.
void pass_down(Builder& b, const TreeNode& node, Range range) {
  if (node.parent >= 0) b.receive(node.parent, b.output(range));
  for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) b.send(*child, b.output(range));
}

}  // namespace

void tree_pipeline(Builder& b, const std::vector<TreeNode>& trees, int segments, int lag) {
  const auto range = [&](size_t tree, int segment) {
    const Range share = part_of(Range{0, b.elements()}, static_cast<int>(trees.size()), static_cast<int>(tree));
    return part_of(share, segments, segment);
  };
  for (int k = 0; k < segments + lag; ++k) {
    for (size_t tree = 0; tree < trees.size() && k < segments; ++tree) add_up(b, trees[tree], range(tree, k));
    for (size_t tree = 0; tree < trees.size() && k >= lag; ++tree) pass_down(b, trees[tree], range(tree, k - lag));
  }
}

}  // namespace herd
