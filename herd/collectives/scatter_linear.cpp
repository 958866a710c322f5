#include "herd/collectives/direct.h"
#include "herd/collectives/scatter.h"

namespace herd {

Schedule scatter_linear(const CollectiveRequest& request) {
  Builder b = builder_for(request, "linear");
  if (build_if_alone(b)) return b.finish();
  const Range mine = b.part(b.self());
  if (b.self() != request.root) {
    b.receive(request.root, b.output(mine));
    return b.finish();
  }
  for (const Rank peer : peers_of(b)) b.send(peer, b.input(b.part(peer)));
  b.copy(b.input(mine), {b.output(mine)});
  return b.finish();
}

}  // namespace herd
