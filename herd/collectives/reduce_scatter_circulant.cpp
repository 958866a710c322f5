#include "herd/collectives/circulant.h"
#include "herd/collectives/reduce_scatter.h"

namespace herd {

Schedule reduce_scatter_circulant(const CollectiveRequest& request) {
  Builder b = builder_for(request, "circulant");
  if (build_if_alone(b)) return b.finish();
  circulant_reduce_scatter(b, request.in_place ? CirculantSums::kOutput : CirculantSums::kScratch);
  return b.finish();
}

}  // namespace herd
