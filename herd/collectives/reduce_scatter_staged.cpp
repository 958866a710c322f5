#include "herd/collectives/direct.h"
#include "herd/collectives/reduce_scatter.h"
#include "herd/collectives/staging.h"

namespace herd {

Schedule reduce_scatter_staged(const CollectiveRequest& request) {
  Builder b = builder_for(request, "staged");
  if (build_if_alone(b)) return b.finish();
  const std::vector<Rank> peers = peers_of(b);
  const int n = b.num_ranks();
  const int pieces = num_pieces(n * b.longest_part(), request.dtype);
  const int64_t longest = part_of(b.longest_part(), pieces, 0).size();  // of one part's share of a piece
  const Slice slots[2] = {b.stage(n * longest), b.stage(n * longest)};
  for (int k = 0; k < pieces; ++k) {
    const Slice slot = slots[k % 2], previous_slot = slots[(k + 1) % 2];
    const auto piece = [&](Rank part) { return part_of(b.part(part), pieces, k); };
    const auto held = [&](Rank part, Rank owner) {  // what `owner` contributes to `part`
      const int64_t begin = slot.begin + part * longest;
      return Slice{owner, Space::kStage, begin, begin + piece(part).size()};
    };
    for (const Rank peer : peers) b.copy(b.input(piece(peer)), {held(peer, b.self())});
    // Each signal also gives back the slot that was reduced one piece ago.
    for (const Rank peer : peers) b.signal(peer, {held(peer, b.self()), Builder::on_rank(previous_slot, peer)});
    const Range mine = piece(b.self());
    std::vector<Slice> sources;
    for (Rank rank = 0; rank < n; ++rank) {
      sources.push_back(rank == b.self() ? b.input(mine) : held(b.self(), rank));
    }
    for (const Rank peer : peers) b.wait(peer, {held(b.self(), peer), previous_slot});
    b.reduce(std::move(sources), {b.output(mine)}, Sum::kComplete);
  }
  return b.finish();
}

}  // namespace herd
