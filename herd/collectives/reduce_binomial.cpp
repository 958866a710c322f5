#include "herd/collectives/reduce.h"

namespace herd {

Schedule reduce_binomial(const CollectiveRequest& request) {
  Builder b = builder_for(request, "binomial");
  if (build_if_alone(b)) return b.finish();
  const unsigned n = b.num_ranks();
  const unsigned place = (b.self() - request.root + n) % n;  // 0 at root
  const auto rank_at = [&](unsigned other_place) { return static_cast<Rank>((other_place + request.root) % n); };
  const Range all{0, b.elements()};
  const bool has_children = place % 2 == 0 && place + 1 < n;
  const Slice sum = place == 0 ? b.output(all) : has_children ? b.scratch(b.elements()) : b.input(all);
  Slice held = b.input(all);
  for (unsigned distance = 1; distance < n; distance *= 2) {
    if (place & distance) {
      b.send(rank_at(place - distance), held);
      break;
    }
    if (place + distance >= n) continue;
    const bool last = place == 0 && 2 * distance >= n;
    b.receive_reduce(rank_at(place + distance), sum, held, last ? Sum::kComplete : Sum::kPartial);
    held = sum;
  }
  return b.finish();
}

}  // namespace herd
