#include "herd/collectives/all_reduce_direct.h"

#include "herd/collectives/direct.h"

namespace herd {

Schedule all_reduce_direct_pull(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_pull");
  if (build_if_alone(b)) return b.finish();
  const std::vector<Rank> peers = peers_of(b);
  const Range mine = b.part(b.self());
  for (const Rank peer : peers) b.signal(peer, {b.input(b.part(peer))});
  for (const Rank peer : peers) b.wait(peer, {b.input(mine, peer)});
  b.reduce(inputs_of_all(b, mine), {b.output(mine)}, Sum::kComplete);
  for (const Rank peer : peers) b.signal(peer, {b.output(mine), b.input(mine, peer)});
  for (const Rank peer : peers) {
    const Slice reduced = b.output(b.part(peer), peer);
    b.wait(peer, {reduced, b.input(b.part(peer))});
    b.copy(reduced, {b.output(b.part(peer))});
    b.signal(peer, {reduced});
  }
  for (const Rank peer : peers) b.wait(peer, {b.output(mine)});
  return b.finish();
}

Schedule all_reduce_direct_push(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_push");
  if (build_if_alone(b)) return b.finish();
  const std::vector<Rank> peers = peers_of(b);
  const Range mine = b.part(b.self());
  std::vector<Slice> targets = {b.output(mine)};
  for (const Rank peer : peers) targets.push_back(b.output(mine, peer));
  for (const Rank peer : peers) b.signal(peer, {b.input(b.part(peer)), b.output(b.part(peer))});
  for (const Rank peer : peers) b.wait(peer, {b.input(mine, peer), b.output(mine, peer)});
  b.reduce(inputs_of_all(b, mine), targets, Sum::kComplete);
  for (const Rank peer : peers) b.signal(peer, {b.input(mine, peer), b.output(mine, peer)});
  for (const Rank peer : peers) b.wait(peer, {b.input(b.part(peer)), b.output(b.part(peer))});
  return b.finish();
}

}  // namespace herd
