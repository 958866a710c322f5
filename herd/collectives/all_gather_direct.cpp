#include "herd/collectives/all_gather.h"
#include "herd/collectives/direct.h"

namespace herd {

Schedule all_gather_direct_pull(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_pull");
  if (build_if_alone(b)) return b.finish();
  const std::vector<Rank> peers = peers_of(b);
  const Range mine = b.part(b.self());
  for (const Rank peer : peers) b.signal(peer, {b.input(mine)});
  b.copy(b.input(mine), {b.output(mine)});
  for (const Rank peer : peers) {
    const Slice theirs = b.input(b.part(peer), peer);
    b.wait(peer, {theirs});
    b.copy(theirs, {b.output(b.part(peer))});
    b.signal(peer, {theirs});
  }
  for (const Rank peer : peers) b.wait(peer, {b.input(mine)});
  return b.finish();
}

Schedule all_gather_direct_push(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_push");
  if (build_if_alone(b)) return b.finish();
  const std::vector<Rank> peers = peers_of(b);
  const Range mine = b.part(b.self());
  std::vector<Slice> targets = {b.output(mine)};
  for (const Rank peer : peers) targets.push_back(b.output(mine, peer));
  for (const Rank peer : peers) b.signal(peer, {b.output(b.part(peer))});
  for (const Rank peer : peers) b.wait(peer, {b.output(mine, peer)});
  b.copy(b.input(mine), targets);
  for (const Rank peer : peers) b.signal(peer, {b.output(mine, peer)});
  for (const Rank peer : peers) b.wait(peer, {b.output(b.part(peer))});
  return b.finish();
}

}  // namespace herd
