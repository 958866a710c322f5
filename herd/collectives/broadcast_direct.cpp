#include "herd/collectives/broadcast.h"
#include "herd/collectives/direct.h"

namespace herd {

Schedule broadcast_direct_pull(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_pull");
  if (build_alone(b)) return b.finish();
  const Range all{0, b.elements()};
  const Slice message = b.input(all, request.root);
  if (b.self() == request.root) {
    for (const Rank peer : peers_of(b)) b.signal(peer, {message});
    b.copy(message, {b.output(all)});
    for (const Rank peer : peers_of(b)) b.wait(peer, {message});
  } else {
    b.wait(request.root, {message});
    b.copy(message, {b.output(all)});
    b.signal(request.root, {message});
  }
  return b.finish();
}

}  // namespace herd
