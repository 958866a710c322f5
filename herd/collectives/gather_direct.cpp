#include "herd/collectives/direct.h"
#include "herd/collectives/gather.h"

namespace herd {

Schedule gather_direct_push(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_push");
  if (build_if_alone(b)) return b.finish();
  const Rank root = request.root;
  const Range mine = b.part(b.self());
  if (b.self() != root) {
    const Slice target = b.output(mine, root);
    b.wait(root, {target});
    b.copy(b.input(mine), {target});
    b.signal(root, {target});
    return b.finish();
  }
  for (const Rank peer : peers_of(b)) b.signal(peer, {b.output(b.part(peer))});
  b.copy(b.input(mine), {b.output(mine)});
  for (const Rank peer : peers_of(b)) b.wait(peer, {b.output(b.part(peer))});
  return b.finish();
}

}  // namespace herd
