#include "herd/collectives/all_reduce_recursive_doubling.h"
#include "herd/collectives/halving_doubling.h"

namespace herd {

Schedule all_reduce_halving_doubling(const CollectiveRequest& request) {
  Builder b = builder_for(request, "halving_doubling");
  if (build_if_alone(b)) return b.finish();
  const FoldedPlaces places(b.num_ranks());
  const Range all{0, b.elements()};
  const KeptAt output = [&b](Range range) { return b.output(range); };
  halving(b, places, output, output);
  doubling(b, places);
  if (places.has_idle_partner(b.self())) b.send(b.self() + 1, b.output(all));
  if (places.is_idle(b.self())) b.receive(b.self() - 1, b.output(all));
  return b.finish();
}

}  // namespace herd
