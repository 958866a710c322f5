#include "herd/collectives/all_reduce_ring.h"

#include "herd/collectives/ring.h"

namespace herd {

Schedule all_reduce_ring(const CollectiveRequest& request) {
  Builder b = builder_for(request, "ring");
  if (!build_if_alone(b)) {
    ring_reduce_scatter(b, RingSums::kOutput);
    ring_all_gather(b);
  }
  return b.finish();
}

}  // namespace herd
