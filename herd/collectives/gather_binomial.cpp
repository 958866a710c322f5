#include "herd/collectives/binomial.h"
#include "herd/collectives/gather.h"

namespace herd {
namespace {

// Tells where a rank keeps the parts of its subtree: root in its output, inner ranks in scratch in the order of places.
class SubtreeMemory {
 public:
  SubtreeMemory(Builder& b, const BinomialTree& tree, int place) : b_(b), tree_(tree), place_(place) {
    if (place == 0 || tree.children(place).empty()) return;
    int64_t elements = 0;
    for (const Range range : subtree_parts(b, tree, place)) elements += range.size();
    scratch_ = b.scratch(elements);
  }

  std::vector<Slice> parts_of(int place) const {  // one per range of subtree_parts
    std::vector<Slice> slices;
    for (const Range range : subtree_parts(b_, tree_, place)) {
      slices.push_back(place_ == 0 ? b_.output(range) : in_scratch(range));
    }
    return slices;
  }

 private:
  Slice in_scratch(Range range) const {
    int64_t begin = scratch_.begin;
    for (const Range kept : subtree_parts(b_, tree_, place_)) {
      if (range.begin >= kept.begin && range.end <= kept.end) {
        begin += range.begin - kept.begin;
        break;
      }
      begin += kept.size();
    }
    return {b_.self(), Space::kScratch, begin, begin + range.size()};
  }

  const Builder& b_;
  const BinomialTree& tree_;
  int place_;
  Slice scratch_ = {};
};

}  // namespace

Schedule gather_binomial(const CollectiveRequest& request) {
  Builder b = builder_for(request, "binomial");
  if (build_if_alone(b)) return b.finish();
  const BinomialTree tree(b.num_ranks(), request.root);
  const int place = tree.place_of(b.self());
  const Slice mine = b.input(b.part(b.self()));
  const std::vector<int> children = tree.children(place);
  if (place > 0 && children.empty()) {
    b.send(tree.rank_at(tree.parent(place)), mine);
    return b.finish();
  }
  const SubtreeMemory held(b, tree, place);
  const Slice own = held.parts_of(place)[0];
  b.copy(mine, {Slice{own.rank, own.space, own.begin, own.begin + mine.size()}});
  for (const int child : children) {
    for (const Slice& slice : held.parts_of(child)) b.receive(tree.rank_at(child), slice);
  }
  if (place > 0) {
    for (const Slice& slice : held.parts_of(place)) b.send(tree.rank_at(tree.parent(place)), slice);
  }
  return b.finish();
}

}  // namespace herd
