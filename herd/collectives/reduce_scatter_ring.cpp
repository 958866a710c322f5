#include "herd/collectives/reduce_scatter.h"
#include "herd/collectives/ring.h"

namespace herd {

Schedule reduce_scatter_ring(const CollectiveRequest& request) {
  Builder b = builder_for(request, "ring");
  if (!build_if_alone(b)) ring_reduce_scatter(b, request.in_place ? RingSums::kOutput : RingSums::kScratch);
  return b.finish();
}

}  // namespace herd
