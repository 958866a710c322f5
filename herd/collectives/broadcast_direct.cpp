#include "herd/collectives/broadcast.h"
#include "herd/collectives/direct.h"

namespace herd {

Schedule broadcast_direct_pull(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_pull");
  if (build_if_alone(b)) return b.finish();
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

Schedule broadcast_direct_push(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_push");
  if (build_if_alone(b)) return b.finish();
  const Rank root = request.root;
  const auto is_target = [&](Rank rank) { return rank != root || !request.in_place; };
  // Returns what `mover` reads and writes in the memory of `owner` when it moves its part of the message.
  const auto touched = [&](Rank mover, Rank owner) {
    std::vector<Slice> slices;
    if (owner == root) slices.push_back(b.input(b.part(mover), root));
    if (is_target(owner)) slices.push_back(b.output(b.part(mover), owner));
    return slices;
  };
  const std::vector<Rank> peers = peers_of(b);
  // Ready: peers may read this rank's memory and write there.
  for (const Rank peer : peers) b.signal(peer, touched(peer, b.self()));
  for (const Rank peer : peers) b.wait(peer, touched(b.self(), peer));
  std::vector<Slice> targets;
  if (is_target(b.self())) targets.push_back(b.output(b.part(b.self())));
  for (const Rank peer : peers) {
    if (is_target(peer)) targets.push_back(b.output(b.part(b.self()), peer));
  }
  b.copy(b.input(b.part(b.self()), root), targets);
  // Done: this rank no longer touches the memory of peers.
  for (const Rank peer : peers) b.signal(peer, touched(b.self(), peer));
  for (const Rank peer : peers) b.wait(peer, touched(peer, b.self()));
  return b.finish();
}

}  // namespace herd
