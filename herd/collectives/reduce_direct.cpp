#include "herd/collectives/direct.h"
#include "herd/collectives/reduce.h"

namespace herd {

Schedule reduce_direct_push(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_push");
  if (build_if_alone(b)) return b.finish();
  const Rank root = request.root;
  const std::vector<Rank> peers = peers_of(b);
  // Returns what `reader` reads and writes in the memory of `owner`.
  const auto touched = [&](Rank reader, Rank owner) {
    std::vector<Slice> slices = {b.input(b.part(reader), owner)};
    if (owner == root && !request.in_place) slices.push_back(b.output(b.part(reader), root));
    return slices;
  };
  // Ready: peers may read this rank's memory and write there.
  for (const Rank peer : peers) b.signal(peer, touched(peer, b.self()));
  for (const Rank peer : peers) b.wait(peer, touched(b.self(), peer));
  const Range mine = b.part(b.self());
  b.reduce(inputs_of_all(b, mine), {b.output(mine, root)}, Sum::kComplete);
  // Done: this rank no longer touches the memory of peers.
  for (const Rank peer : peers) b.signal(peer, touched(b.self(), peer));
  for (const Rank peer : peers) b.wait(peer, touched(peer, b.self()));
  return b.finish();
}

}  // namespace herd
