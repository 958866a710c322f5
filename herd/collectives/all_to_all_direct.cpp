#include "herd/collectives/all_to_all.h"
#include "herd/collectives/direct.h"

namespace herd {

Schedule all_to_all_direct_pull(const CollectiveRequest& request) {
  Builder b = builder_for(request, "direct_pull");
  if (build_if_alone(b)) return b.finish();
  const Rank self = b.self();
  const std::vector<Rank> peers = peers_of(b);
  for (const Rank peer : peers) b.signal(peer, {b.sent(self, peer)});
  b.copy(b.sent(self, self), {b.received(self, self)});
  for (const Rank peer : peers) {
    const Slice block = b.sent(peer, self);
    b.wait(peer, {block});
    b.copy(block, {b.received(peer, self)});
    b.signal(peer, {block});
  }
  for (const Rank peer : peers) b.wait(peer, {b.sent(self, peer)});
  return b.finish();
}

}  // namespace herd
