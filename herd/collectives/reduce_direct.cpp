#include "herd/collectives/direct.h"
#include "herd/collectives/reduce.h"

namespace herd {

Schedule reduce_direct_push(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_push");
  if (build_alone(b)) return b.finish();
  const Rank root = request.root;
  const std::vector<Rank> peers = peers_of(b);
  // What rank `reader` reads of `owner`, and writes there.
  const auto touched = [&](Rank owner, Rank reader) {
    std::vector<Slice> slices = {b.input(b.part(reader), owner)};
    if (owner == root && !request.in_place) slices.push_back(b.output(b.part(reader), root));
    return slices;
  };
  for (const Rank peer : peers) b.signal(peer, touched(b.self(), peer));
  for (const Rank peer : peers) b.wait(peer, touched(peer, b.self()));
  const Range mine = b.part(b.self());
  b.reduce(inputs_of_all(b, mine), {b.output(mine, root)}, Sum::kComplete);
  for (const Rank peer : peers) b.signal(peer, touched(peer, b.self()));
  for (const Rank peer : peers) b.wait(peer, touched(b.self(), peer));
  return b.finish();
}

}  // namespace herd
