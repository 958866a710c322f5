#include "herd/collectives/broadcast.h"
#include "herd/collectives/segments.h"

namespace herd {

Schedule broadcast_chain(const CollectiveRequest& request) {
  Builder b = builder_for(request, "chain");
  if (build_if_alone(b)) return b.finish();
  const int n = b.num_ranks();
  const int place = (b.self() - request.root + n) % n;
  const int segments = num_segments(request);
  for (int k = 0; k < segments; ++k) {
    const Range segment = part_of(Range{0, b.elements()}, segments, k);
    if (place > 0) b.receive(b.neighbor(-1), b.output(segment));
    if (place < n - 1) b.send(b.neighbor(1), place == 0 ? b.input(segment) : b.output(segment));
  }
  if (place == 0) b.copy(b.input({0, b.elements()}), {b.output({0, b.elements()})});
  return b.finish();
}

}  // namespace herd
