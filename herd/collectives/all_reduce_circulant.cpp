#include "herd/collectives/all_reduce_circulant.h"

#include "herd/collectives/circulant.h"

namespace herd {

Schedule all_reduce_circulant(const CollectiveRequest& request) {
  Builder b = builder_for(request, "circulant");
  if (build_if_alone(b)) return b.finish();
  circulant_reduce_scatter(b, CirculantSums::kOutput);
  circulant_all_gather(b);
  return b.finish();
}

}  // namespace herd
