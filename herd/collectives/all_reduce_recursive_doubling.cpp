#include "herd/collectives/all_reduce_recursive_doubling.h"

#include "herd/collectives/folded_places.h"

namespace herd {

Schedule all_reduce_recursive_doubling(const CollectiveRequest& request) {
  Builder b = builder_for(request, "recursive_doubling");
  if (build_if_alone(b)) return b.finish();
  const FoldedPlaces places(b.num_ranks());
  const Range all{0, b.elements()};
  const Rank self = b.self();
  if (places.is_idle(self)) {
    b.send(self - 1, b.input(all));
    b.receive(self - 1, b.output(all));
    return b.finish();
  }
  Slice held = b.input(all);
  if (places.has_idle_partner(self)) {
    b.receive_reduce(self + 1, b.output(all), held, Sum::kPartial);
    held = b.output(all);
  }
  const int place = places.place_of(self);
  Slice arrivals[2] = {};
  int round = 0;
  for (int distance = 1; distance < places.num_places(); distance *= 2, ++round) {
    Slice& arrived = arrivals[round % 2];
    if (arrived.size() == 0) arrived = b.scratch(b.elements());
    const Rank peer = places.rank_at(place ^ distance);
    b.send(peer, held);
    b.receive(peer, arrived);
    const bool last = 2 * distance == places.num_places();
    b.reduce(peer < self ? std::vector{arrived, held} : std::vector{held, arrived}, {b.output(all)},
             last ? Sum::kComplete : Sum::kPartial);
    held = b.output(all);
  }
  if (places.has_idle_partner(self)) b.send(self + 1, b.output(all));
  return b.finish();
}

}  // namespace herd
