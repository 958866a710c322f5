#include "herd/collectives/all_to_all.h"
#include "herd/collectives/direct.h"
#include "herd/collectives/staging.h"

namespace herd {

Schedule all_to_all_staged(const CollectiveRequest& request) {
  Builder b = builder_for(request, "staged");
  if (build_if_alone(b)) return b.finish();
  const std::vector<Rank> peers = peers_of(b);
  const Rank self = b.self();
  const int n = b.num_ranks();
  const int pieces = num_pieces(n * b.longest_part(), request.dtype);
  const int64_t longest = part_of(b.longest_part(), pieces, 0).size();  // of one block's share of a piece
  const Slice slots[2] = {b.stage(n * longest), b.stage(n * longest)};
  b.copy(b.sent(self, self), {b.received(self, self)});
  for (int k = 0; k < pieces; ++k) {
    const Slice slot = slots[k % 2], previous_slot = slots[(k + 1) % 2];
    const auto piece = [&](Slice block) {
      const Range range = part_of(Range{block.begin, block.end}, pieces, k);
      return Slice{block.rank, block.space, range.begin, range.end};
    };
    const auto held = [&](Rank from, Rank to) {
      const int64_t begin = slot.begin + to * longest;
      return Slice{from, Space::kStage, begin, begin + piece(b.sent(from, to)).size()};
    };
    for (const Rank peer : peers) b.copy(piece(b.sent(self, peer)), {held(self, peer)});
    // Each signal also gives back the slot that was copied out one piece ago.
    for (const Rank peer : peers) b.signal(peer, {held(self, peer), Builder::on_rank(previous_slot, peer)});
    for (const Rank peer : peers) {
      b.wait(peer, {held(peer, self), previous_slot});
      b.copy(held(peer, self), {piece(b.received(peer, self))});
    }
  }
  return b.finish();
}

}  // namespace herd
