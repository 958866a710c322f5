#include "herd/collectives/all_gather.h"
#include "herd/collectives/halving_doubling.h"

namespace herd {

Schedule all_gather_recursive_doubling(const CollectiveRequest& request) {
  Builder b = builder_for(request, "recursive_doubling");
  if (build_if_alone(b)) return b.finish();
  const FoldedPlaces places(b.num_ranks());
  const Rank self = b.self();
  const Range mine = b.part(self);
  if (places.is_idle(self)) {
    b.send(self - 1, b.input(mine));
    b.copy(b.input(mine), {b.output(mine)});
    b.receive(self - 1, b.output({0, mine.begin}));
    b.receive(self - 1, b.output({mine.end, b.elements()}));
    return b.finish();
  }
  b.copy(b.input(mine), {b.output(mine)});
  if (places.has_idle_partner(self)) b.receive(self + 1, b.output(b.part(self + 1)));
  doubling(b, places);
  if (places.has_idle_partner(self)) {
    const Range theirs = b.part(self + 1);
    b.send(self + 1, b.output({0, theirs.begin}));
    b.send(self + 1, b.output({theirs.end, b.elements()}));
  }
  return b.finish();
}

}  // namespace herd
