#include "herd/collectives/halving_doubling.h"

namespace herd {

void halving(Builder& b, const FoldedPlaces& places, const KeptAt& partial, const KeptAt& result) {
  const Range all{0, b.elements()};
  if (places.is_idle(b.self())) {
    b.send(b.self() - 1, b.input(all));
    return;
  }
  KeptAt held = [&b](Range range) { return b.input(range); };
  if (places.has_idle_partner(b.self())) {
    b.receive_reduce(b.self() + 1, partial(all), b.input(all), Sum::kPartial);
    held = partial;
  }
  const int place = places.place_of(b.self());
  for (int distance = places.num_places() / 2; distance >= 1; distance /= 2) {
    const int begin = place / distance * distance, other = begin ^ distance;
    const Range keep = places.parts_of(b, begin, begin + distance), give = places.parts_of(b, other, other + distance);
    const Rank peer = places.rank_at(place ^ distance);
    b.send(peer, held(give));
    b.receive_reduce(peer, distance == 1 ? result(keep) : partial(keep), held(keep),
                     distance == 1 ? Sum::kComplete : Sum::kPartial);
    held = partial;
  }
}

void doubling(Builder& b, const FoldedPlaces& places) {
  if (places.is_idle(b.self())) return;
  const int place = places.place_of(b.self());
  for (int distance = 1; distance < places.num_places(); distance *= 2) {
    const int begin = place / distance * distance, other = begin ^ distance;
    const Rank peer = places.rank_at(place ^ distance);
    b.send(peer, b.output(places.parts_of(b, begin, begin + distance)));
    b.receive(peer, b.output(places.parts_of(b, other, other + distance)));
  }
}

}  // namespace herd
