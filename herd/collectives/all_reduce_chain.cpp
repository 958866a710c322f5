#include "herd/collectives/chain.h"
#include "herd/collectives/segments.h"
#include "herd/collectives/tree_pipeline.h"

namespace herd {

Schedule all_reduce_chain(const CollectiveRequest& request) {
  Builder b = builder_for(request, "chain");
  if (build_if_alone(b)) return b.finish();
  const Rank self = b.self(), last = b.num_ranks() - 1, middle = b.num_ranks() / 2;
  TreeNode node;
  if (self != middle) node.parent = self < middle ? self + 1 : self - 1;
  if (self > 0 && self <= middle) node.children.push_back(self - 1);
  if (self < last && self >= middle) node.children.push_back(self + 1);
  tree_pipeline(b, {node}, num_segments(request), middle);
  return b.finish();
}

}  // namespace herd
