#include "herd/collectives/direct.h"
#include "herd/collectives/scatter.h"
#include "herd/collectives/staging.h"

namespace herd {

Schedule scatter_staged(const CollectiveRequest& request) {
  Builder b = builder_for(request, "staged");
  if (build_if_alone(b)) return b.finish();
  const Rank root = request.root;
  const std::vector<Rank> peers = peers_of(b);
  const int n = b.num_ranks();
  const int pieces = num_pieces(b.longest_part() * n, request.dtype);
  const int64_t longest = part_of(b.longest_part(), pieces, 0).size();
  const Slice slots[2] = {Builder::on_rank(b.stage(n * longest), root), Builder::on_rank(b.stage(n * longest), root)};
  if (b.self() == root) {
    for (const Rank peer : peers) b.wait(peer, {slots[0], slots[1]});
    b.copy(b.input(b.part(root)), {b.output(b.part(root))});
  } else {
    b.signal(root, {slots[0], slots[1]});
  }
  for (int k = 0; k < pieces; ++k) {
    const auto piece = [&](Rank owner) { return part_of(b.part(owner), pieces, k); };
    const auto held = [&](Rank owner) {
      const int64_t begin = slots[k % 2].begin + owner * longest;
      return Slice{root, Space::kStage, begin, begin + piece(owner).size()};
    };
    if (b.self() == root) {
      for (const Rank peer : peers) {
        if (k >= 2) b.wait(peer, {held(peer)});
        b.copy(b.input(piece(peer)), {held(peer)});
        b.signal(peer, {k == 0 ? slots[0] : held(peer)});  // the first follows all check-ins, even with nothing to copy
      }
    } else {
      b.wait(root, {held(b.self())});
      b.copy(held(b.self()), {b.output(piece(b.self()))});
      if (k + 2 < pieces) b.signal(root, {held(b.self())});
    }
  }
  return b.finish();
}

}  // namespace herd
