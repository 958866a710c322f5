#include "herd/collectives/gather.h"
#include "herd/collectives/staged_to_root.h"

namespace herd {
namespace {

void take_all(Builder& b, const StagedToRoot& staged) {
  b.copy(b.input(b.part(b.self())), {b.output(b.part(b.self()))});
  for (int k = 0; k < staged.num_pieces(); ++k) {
    std::vector<Slice> taken;  // orders each answer after all peers' pieces, even empty ones
    for (const Rank peer : peers_of(b)) {
      taken.push_back(staged.slot(k, peer));
      b.wait(peer, {taken.back()});
      b.copy(staged.held(k, peer), {b.output(staged.piece(k, peer))});
    }
    for (const Rank peer : peers_of(b)) b.signal(peer, taken);
  }
}

}  // namespace

Schedule gather_staged(const CollectiveRequest& request) {
  Builder b = builder_for(request, "staged");
  if (build_if_alone(b)) return b.finish();
  StagedToRoot staged(b, request.dtype, b.longest_part(), [&](Rank owner) { return b.part(owner); });
  if (b.self() == request.root) {
    take_all(b, staged);
  } else {
    staged.hand_over(request.root);
  }
  return b.finish();
}

}  // namespace herd
