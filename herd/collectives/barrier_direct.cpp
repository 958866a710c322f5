#include "herd/collectives/barrier.h"
#include "herd/collectives/direct.h"

namespace herd {

Schedule barrier_direct_signal(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_signal");
  for (const Rank peer : peers_of(b)) b.signal(peer, {});
  for (const Rank peer : peers_of(b)) b.wait(peer, {});
  return b.finish();
}

}  // namespace herd
