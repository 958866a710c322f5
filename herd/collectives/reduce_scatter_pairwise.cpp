#include "herd/collectives/reduce_scatter.h"

namespace herd {

Schedule reduce_scatter_pairwise(const CollectiveRequest& request) {
  Builder b = builder_for(request, "pairwise");
  if (build_if_alone(b)) return b.finish();
  const Range mine = b.part(b.self());
  Slice held = b.input(mine);
  for (int distance = 1; distance < b.num_ranks(); ++distance) {
    b.send(b.neighbor(distance), b.input(b.part(b.neighbor(distance))));
    const bool last = distance == b.num_ranks() - 1;
    b.receive_reduce(b.neighbor(-distance), b.output(mine), held, last ? Sum::kComplete : Sum::kPartial);
    held = b.output(mine);
  }
  return b.finish();
}

}  // namespace herd
