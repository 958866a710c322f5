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
    const int begin = place / distance * distance, peer_begin = begin ^ distance;
    const Range kept_range = places.parts_of(b, begin, begin + distance);
    const Range sent_range = places.parts_of(b, peer_begin, peer_begin + distance);
    const Rank peer = places.rank_at(place ^ distance);
    b.send(peer, held(sent_range));
    b.receive_reduce(peer, distance == 1 ? result(kept_range) : partial(kept_range), held(kept_range),
                     distance == 1 ? Sum::kComplete : Sum::kPartial);
    held = partial;
  }
}

void doubling(Builder& b, const FoldedPlaces& places) {
  if (places.is_idle(b.self())) return;
  const int place = places.place_of(b.self());
  for (int distance = 1; distance < places.num_places(); distance *= 2) {
    const int begin = place / distance * distance, peer_begin = begin ^ distance;
    const Rank peer = places.rank_at(place ^ distance);
    b.send(peer, b.output(places.parts_of(b, begin, begin + distance)));
    b.receive(peer, b.output(places.parts_of(b, peer_begin, peer_begin + distance)));
  }
}

}  // namespace herd
