#include "herd/collectives/direct.h"
#include "herd/collectives/gather.h"
#include "herd/collectives/staging.h"

namespace herd {
namespace {

constexpr int kSlots = 2;

struct Pieces {
  int count;
  Slice slots[kSlots];
  Range range(const Builder& b, int k, Rank owner) const { return part_of(b.part(owner), count, k); }
  Slice held(const Builder& b, int k, Rank owner) const {
    const Slice& slot = slots[k % kSlots];
    return {owner, Space::kStage, slot.begin, slot.begin + range(b, k, owner).size()};
  }
};

void build_root(Builder& b, const Pieces& pieces) {
  b.copy(b.input(b.part(b.self())), {b.output(b.part(b.self()))});
  for (int k = 0; k < pieces.count; ++k) {
    std::vector<Slice> taken;  // so that each answer follows what everybody gave, be it nothing
    for (const Rank peer : peers_of(b)) {
      taken.push_back(Builder::of(pieces.slots[k % kSlots], peer));
      b.wait(peer, {taken.back()});
      b.copy(pieces.held(b, k, peer), {b.output(pieces.range(b, k, peer))});
    }
    for (const Rank peer : peers_of(b)) b.signal(peer, taken);
  }
}

void build_other(Builder& b, const Pieces& pieces, Rank root) {
  for (int k = 0; k < pieces.count + kSlots; ++k) {
    if (k >= kSlots) b.wait(root, {pieces.slots[k % kSlots]});  // root has taken piece k - kSlots
    if (k >= pieces.count) continue;
    b.copy(b.input(pieces.range(b, k, b.self())), {pieces.held(b, k, b.self())});
    b.signal(root, {pieces.held(b, k, b.self())});
  }
}

}  // namespace

Schedule gather_staged(const CollectiveRequest& request) {
  Builder b = builder_for(request, "staged");
  if (build_alone(b)) return b.finish();
  const int count = num_pieces(b.longest_part(), request.dtype);
  const int64_t longest = part_of(b.longest_part(), count, 0).size();
  const Pieces pieces{count, {b.stage(longest), b.stage(longest)}};
  if (b.self() == request.root) {
    build_root(b, pieces);
  } else {
    build_other(b, pieces, request.root);
  }
  return b.finish();
}

}  // namespace herd
