#include "herd/collectives/direct.h"
#include "herd/collectives/reduce_scatter.h"

namespace herd {

Schedule reduce_scatter_direct_pull(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_pull");
  if (build_if_alone(b)) return b.finish();
  const std::vector<Rank> peers = peers_of(b);
  const Range mine = b.part(b.self());
  for (const Rank peer : peers) b.signal(peer, {b.input(b.part(peer))});
  for (const Rank peer : peers) b.wait(peer, {b.input(mine, peer)});
  b.reduce(inputs_of_all(b, mine), {b.output(mine)}, Sum::kComplete);
  for (const Rank peer : peers) b.signal(peer, {b.input(mine, peer)});
  for (const Rank peer : peers) b.wait(peer, {b.input(b.part(peer))});
  return b.finish();
}

}  // namespace herd
