#include "herd/collectives/direct.h"
#include "herd/collectives/gather.h"

namespace herd {

Schedule gather_linear(const CollectiveRequest& request) {
  Builder b = builder_for(request, "linear");
  if (build_if_alone(b)) return b.finish();
  const Range mine = b.part(b.self());
  if (b.self() != request.root) {
    b.send(request.root, b.input(mine));
    return b.finish();
  }
  for (const Rank peer : peers_of(b)) b.receive(peer, b.output(b.part(peer)));
  b.copy(b.input(mine), {b.output(mine)});
  return b.finish();
}

}  // namespace herd
