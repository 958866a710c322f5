#include "herd/collectives/all_reduce_naive.h"

#include "herd/collectives/direct.h"

namespace herd {

Schedule all_reduce_naive(const CollectiveRequest& request) {
  Builder b = builder_for(request, "naive");
  if (build_if_alone(b)) return b.finish();
  const Range all{0, b.elements()};
  std::vector<Slice> contributions(static_cast<size_t>(b.num_ranks()), b.input(all));
  for (const Rank peer : peers_of(b)) b.send(peer, b.input(all));
  for (Rank rank = 0; rank < b.num_ranks(); ++rank) {
    if (rank != b.self()) contributions[static_cast<size_t>(rank)] = b.scratch(b.elements());
  }
  for (int distance = 1; distance < b.num_ranks(); ++distance) {
    const Rank peer = b.neighbor(-distance);
    b.receive(peer, contributions[static_cast<size_t>(peer)]);
  }
  b.reduce(std::move(contributions), {b.output(all)}, Sum::kComplete);
  return b.finish();
}

}  // namespace herd
