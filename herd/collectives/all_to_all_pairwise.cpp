#include "herd/collectives/all_to_all.h"

namespace herd {

Schedule all_to_all_pairwise(const CollectiveRequest& request) {
  Builder b = builder_for(request, "pairwise");
  if (build_if_alone(b)) return b.finish();
  const Rank self = b.self();
  // In place, an arriving block may overwrite one that is still to be sent, so those are copied to scratch first.
  std::vector<Slice> outgoing(static_cast<size_t>(b.num_ranks()));
  for (Rank to = 0; to < b.num_ranks(); ++to) {
    outgoing[to] = b.sent(self, to);
    if (!request.in_place || to == self) continue;
    outgoing[to] = b.scratch(outgoing[to].size());
    b.copy(b.sent(self, to), {outgoing[to]});
  }
  b.copy(b.sent(self, self), {b.received(self, self)});
  for (int distance = 1; distance < b.num_ranks(); ++distance) {
    b.send(b.neighbor(distance), outgoing[b.neighbor(distance)]);
    b.receive(b.neighbor(-distance), b.received(b.neighbor(-distance), self));
  }
  return b.finish();
}

}  // namespace herd
