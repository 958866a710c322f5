#include "herd/collectives/all_gather.h"
#include "herd/collectives/ring.h"

namespace herd {

Schedule all_gather_ring(const CollectiveRequest& request) {
  Builder b = builder_for(request, "ring");
  if (build_if_alone(b)) return b.finish();
  const Range mine = b.part(b.self());
  b.copy(b.input(mine), {b.output(mine)});
  ring_all_gather(b);
  return b.finish();
}

}  // namespace herd
