#include "herd/collectives/all_gather.h"
#include "herd/collectives/direct.h"
#include "herd/collectives/staging.h"

namespace herd {

Schedule all_gather_staged(const CollectiveRequest& request) {
  Builder b = builder_for(request, "staged");
  if (build_if_alone(b)) return b.finish();
  const std::vector<Rank> peers = peers_of(b);
  const int pieces = num_pieces(b.longest_part(), request.dtype);
  const int64_t longest = part_of(b.longest_part(), pieces, 0).size();
  const Slice slots[2] = {b.stage(longest), b.stage(longest)};
  for (int k = 0; k < pieces; ++k) {
    const Slice slot = slots[k % 2], previous_slot = slots[(k + 1) % 2];
    const auto piece = [&](Rank owner) { return part_of(b.part(owner), pieces, k); };
    const auto held = [&](Rank owner) {
      return Slice{owner, Space::kStage, slot.begin, slot.begin + piece(owner).size()};
    };
    std::vector<Slice> targets = {held(b.self()), b.output(piece(b.self()))};
    b.copy(b.input(piece(b.self())), targets);
    // Each signal also gives back the slot that was copied out one piece ago.
    for (const Rank peer : peers) b.signal(peer, {held(b.self()), Builder::on_rank(previous_slot, peer)});
    for (const Rank peer : peers) {
      b.wait(peer, {held(peer), previous_slot});
      b.copy(held(peer), {b.output(piece(peer))});
    }
  }
  return b.finish();
}

}  // namespace herd
