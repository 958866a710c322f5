#include "herd/collectives/binomial.h"
#include "herd/collectives/scatter.h"

namespace herd {

Schedule scatter_binomial(const CollectiveRequest& request) {
  Builder b = builder_for(request, "binomial");
  if (build_if_alone(b)) return b.finish();
  const BinomialTree tree(b.num_ranks(), request.root);
  const int place = tree.place_of(b.self());
  const Range mine = b.part(b.self());
  std::vector<int> children = tree.children(place);
  if (place > 0 && children.empty()) {
    b.receive(tree.rank_at(tree.parent(place)), b.output(mine));
    return b.finish();
  }
  // Inner ranks hold the parts of their subtree in scratch, in the order of places.
  struct SubtreeRange {
    Range range;
    Slice held;
  };
  std::vector<SubtreeRange> ranges;
  for (const Range range : subtree_parts(b, tree, place)) {
    ranges.push_back({range, place == 0 ? b.input(range) : b.scratch(range.size())});
    if (place > 0) b.receive(tree.rank_at(tree.parent(place)), ranges.back().held);
  }
  const auto held = [&](Range range) {
    for (const SubtreeRange& kept : ranges) {
      if (range.begin < kept.range.begin || range.end > kept.range.end) continue;
      const int64_t begin = kept.held.begin + range.begin - kept.range.begin;
      return Slice{b.self(), kept.held.space, begin, begin + range.size()};
    }
    return Slice{};
  };
  for (auto child = children.rbegin(); child != children.rend(); ++child) {  // the largest subtree first
    for (const Range range : subtree_parts(b, tree, *child)) b.send(tree.rank_at(*child), held(range));
  }
  b.copy(held(mine), {b.output(mine)});
  return b.finish();
}

}  // namespace herd
