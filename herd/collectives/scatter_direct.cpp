#include "herd/collectives/direct.h"
#include "herd/collectives/scatter.h"

namespace herd {

Schedule scatter_direct_pull(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_pull");
  if (build_if_alone(b)) return b.finish();
  const Rank root = request.root;
  const Range mine = b.part(b.self());
  if (b.self() != root) {
    const Slice place = b.input(mine, root);
    b.wait(root, {place});
    b.copy(place, {b.output(mine)});
    b.signal(root, {place});
    return b.finish();
  }
  for (const Rank peer : peers_of(b)) b.signal(peer, {b.input(b.part(peer))});
  b.copy(b.input(mine), {b.output(mine)});
  for (const Rank peer : peers_of(b)) b.wait(peer, {b.input(b.part(peer))});
  return b.finish();
}

}  // namespace herd
