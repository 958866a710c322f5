#include "herd/collectives/all_gather.h"
#include "herd/collectives/circulant.h"

namespace herd {

Schedule all_gather_circulant(const CollectiveRequest& request) {
  Builder b = builder_for(request, "circulant");
  if (build_if_alone(b)) return b.finish();
  b.copy(b.input(b.part(b.self())), {b.output(b.part(b.self()))});
  circulant_all_gather(b);
  return b.finish();
}

}  // namespace herd
