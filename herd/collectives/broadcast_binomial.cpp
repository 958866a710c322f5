#include <bit>

#include "herd/collectives/broadcast.h"

namespace herd {

Schedule broadcast_binomial(const CollectiveRequest& request) {
  Builder b = builder_for(request, "binomial");
  if (build_if_alone(b)) return b.finish();
  const unsigned n = b.num_ranks();
  const unsigned place = (b.self() - request.root + n) % n;  // 0 at root
  const auto rank_at = [&](unsigned other_place) { return static_cast<Rank>((other_place + request.root) % n); };
  const Range all{0, b.elements()};
  const bool is_root = place == 0;
  const unsigned parent_distance = std::bit_floor(place);
  if (!is_root) b.receive(rank_at(place - parent_distance), b.output(all));
  for (unsigned distance = is_root ? 1 : 2 * parent_distance; place + distance < n; distance *= 2) {
    b.send(rank_at(place + distance), is_root ? b.input(all) : b.output(all));
  }
  if (is_root) b.copy(b.input(all), {b.output(all)});
  return b.finish();
}

}  // namespace herd
