#include "herd/collectives/chain.h"

namespace herd {

Schedule reduce_scatter_chain(const CollectiveRequest& request) {
  Builder b = builder_for(request, "chain");
  if (build_if_alone(b)) return b.finish();
  const Rank self = b.self(), last = b.num_ranks() - 1;
  const Slice scratch = request.in_place ? Slice{} : b.scratch(b.elements());
  const auto partial = [&](Range range) {
    if (request.in_place) return b.output(range);
    return Slice{self, Space::kScratch, scratch.begin + range.begin, scratch.begin + range.end};
  };
  // The parts that are furthest away go first. A sum is what came from behind, added to this rank's own.
  for (int step = 0; step < last; ++step) {
    const Rank right = last - step, left = step;  // the ranks whose parts move
    if (right > self) {
      const Slice own = b.input(b.part(right));
      if (self > 0) b.receive_reduce(self - 1, partial(b.part(right)), own, Sum::kPartial);
      b.send(self + 1, self > 0 ? partial(b.part(right)) : own);
    }
    if (left < self) {
      const Slice own = b.input(b.part(left));
      if (self < last) b.receive_reduce(self + 1, partial(b.part(left)), own, Sum::kPartial);
      b.send(self - 1, self < last ? partial(b.part(left)) : own);
    }
  }
  const Slice sum = b.output(b.part(self));
  if (self > 0) b.receive_reduce(self - 1, sum, b.input(b.part(self)), self < last ? Sum::kPartial : Sum::kComplete);
  if (self < last) b.receive_reduce(self + 1, sum, self > 0 ? sum : b.input(b.part(self)), Sum::kComplete);
  return b.finish();
}

}  // namespace herd
