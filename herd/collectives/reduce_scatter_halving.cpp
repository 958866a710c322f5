#include "herd/collectives/halving_doubling.h"
#include "herd/collectives/reduce_scatter.h"

namespace herd {

Schedule reduce_scatter_halving(const CollectiveRequest& request) {
  Builder b = builder_for(request, "halving");
  if (build_if_alone(b)) return b.finish();
  const FoldedPlaces places(b.num_ranks());
  const Rank self = b.self();
  if (places.is_idle(self)) {
    b.send(self - 1, b.input({0, b.elements()}));
    b.receive(self - 1, b.output(b.part(self)));
    return b.finish();
  }
  const bool has_partner = places.has_idle_partner(self);
  // The range of partial sums: everything where an idle partner's input comes first, else the half that is kept.
  Range partial_range{0, b.elements()};
  if (!has_partner && places.num_places() > 1) {
    const int half = places.num_places() / 2, begin = places.place_of(self) / half * half;
    partial_range = places.parts_of(b, begin, begin + half);
  }
  const bool to_scratch = !request.in_place && (has_partner || places.num_places() > 2);
  const Slice scratch = to_scratch ? b.scratch(partial_range.size()) : Slice{};
  const KeptAt partial = [&](Range range) {
    if (!to_scratch) return b.output(range);
    const int64_t begin = scratch.begin + range.begin - partial_range.begin;
    return Slice{self, Space::kScratch, begin, begin + range.size()};
  };
  const KeptAt output = [&b](Range range) { return b.output(range); };
  halving(b, places, partial, has_partner ? partial : output);
  if (has_partner) {
    b.send(self + 1, partial(b.part(self + 1)));
    b.copy(partial(b.part(self)), {b.output(b.part(self))});
  }
  return b.finish();
}

}  // namespace herd
