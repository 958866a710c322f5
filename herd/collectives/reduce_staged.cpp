#include "herd/collectives/direct.h"
#include "herd/collectives/reduce.h"
#include "herd/collectives/staging.h"

namespace herd {
namespace {

constexpr int kSlots = 2;

struct Pieces {
  int count;
  Slice slots[kSlots];
  Range range(const Builder& b, int k) const { return part_of(Range{0, b.elements()}, count, k); }
  Slice held(const Builder& b, int k, Rank owner) const {
    const Slice& slot = slots[k % kSlots];
    return {owner, Space::kStage, slot.begin, slot.begin + range(b, k).size()};
  }
};

void build_root(Builder& b, const Pieces& pieces) {
  for (int k = 0; k < pieces.count; ++k) {
    const Range piece = pieces.range(b, k);
    std::vector<Slice> sources;
    for (Rank rank = 0; rank < b.num_ranks(); ++rank) {
      sources.push_back(rank == b.self() ? b.input(piece) : pieces.held(b, k, rank));
    }
    for (const Rank peer : peers_of(b)) b.wait(peer, {pieces.held(b, k, peer)});
    b.reduce(std::move(sources), {b.output(piece)}, Sum::kComplete);
    for (const Rank peer : peers_of(b)) b.signal(peer, {pieces.held(b, k, peer)});
  }
}

void build_other(Builder& b, const Pieces& pieces, Rank root) {
  for (int k = 0; k < pieces.count + kSlots; ++k) {
    if (k >= kSlots) b.wait(root, {pieces.slots[k % kSlots]});  // root has reduced piece k - kSlots
    if (k >= pieces.count) continue;
    b.copy(b.input(pieces.range(b, k)), {pieces.held(b, k, b.self())});
    b.signal(root, {pieces.held(b, k, b.self())});
  }
}

}  // namespace

Schedule reduce_staged(const CollectiveRequest& request) {
  Builder b = builder_for(request, "staged");
  if (build_alone(b)) return b.finish();
  const int count = num_pieces(request.elements, request.dtype);
  const int64_t longest = part_of(request.elements, count, 0).size();
  const Pieces pieces{count, {b.stage(longest), b.stage(longest)}};
  if (b.self() == request.root) {
    build_root(b, pieces);
  } else {
    build_other(b, pieces, request.root);
  }
  return b.finish();
}

}  // namespace herd
