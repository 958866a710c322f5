#include "herd/collectives/broadcast.h"
#include "herd/collectives/direct.h"
#include "herd/collectives/staging.h"

namespace herd {

Schedule broadcast_staged(const CollectiveRequest& request) {
  Builder b = builder_for(request, "staged");
  if (build_if_alone(b)) return b.finish();
  const Rank root = request.root;
  const std::vector<Rank> peers = peers_of(b);
  const int pieces = num_pieces(request.elements, request.dtype);
  const int64_t longest = part_of(request.elements, pieces, 0).size();
  const Slice slots[2] = {Builder::on_rank(b.stage(longest), root), Builder::on_rank(b.stage(longest), root)};
  if (b.self() == root) {
    for (const Rank peer : peers) b.wait(peer, {slots[0], slots[1]});
  } else {
    b.signal(root, {slots[0], slots[1]});
  }
  for (int k = 0; k < pieces; ++k) {
    const Range piece = part_of(Range{0, request.elements}, pieces, k);
    Slice held = slots[k % 2];
    held.end = held.begin + piece.size();
    if (b.self() == root) {
      if (k >= 2) {
        for (const Rank peer : peers) b.wait(peer, {slots[k % 2]});
      }
      b.copy(b.input(piece), {held});
      for (const Rank peer : peers) b.signal(peer, {held});
      b.copy(b.input(piece), {b.output(piece)});
    } else {
      b.wait(root, {held});
      b.copy(held, {b.output(piece)});
      if (k + 2 < pieces) b.signal(root, {slots[k % 2]});
    }
  }
  return b.finish();
}

}  // namespace herd
