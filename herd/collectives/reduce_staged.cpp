#include "herd/collectives/reduce.h"
#include "herd/collectives/staged_to_root.h"

namespace herd {
namespace {

void reduce_all(Builder& b, const StagedToRoot& staged) {
  for (int k = 0; k < staged.num_pieces(); ++k) {
    const Range piece = staged.piece(k, b.self());
    std::vector<Slice> sources;
    for (Rank rank = 0; rank < b.num_ranks(); ++rank) {
      sources.push_back(rank == b.self() ? b.input(piece) : staged.held(k, rank));
    }
    for (const Rank peer : peers_of(b)) b.wait(peer, {staged.held(k, peer)});
    b.reduce(std::move(sources), {b.output(piece)}, Sum::kComplete);
    for (const Rank peer : peers_of(b)) b.signal(peer, {staged.held(k, peer)});
  }
}

}  // namespace

Schedule reduce_staged(const CollectiveRequest& request) {
  Builder b = builder_for(request, "staged");
  if (build_if_alone(b)) return b.finish();
  StagedToRoot staged(b, request.dtype, b.elements(), [&](Rank) { return Range{0, b.elements()}; });
  if (b.self() == request.root) {
    reduce_all(b, staged);
  } else {
    staged.hand_over(request.root);
  }
  return b.finish();
}

}  // namespace herd
