#include "herd/collectives/all_reduce_staged.h"

#include "herd/collectives/direct.h"
#include "herd/collectives/staging.h"

namespace herd {
namespace {

constexpr int kDepth = 3;  // pieces in flight: one is copied in, one reduced, one copied out

Slice first_elements(Slice slice, int64_t elements) {
  slice.end = slice.begin + elements;
  return slice;
}

// Every rank puts its whole input into stage memory and adds up the inputs of all.
void one_shot(Builder& b) {
  const Range all{0, b.elements()};
  const Slice stage = b.stage(b.elements());
  std::vector<Slice> sources;
  for (Rank rank = 0; rank < b.num_ranks(); ++rank) {
    sources.push_back(rank == b.self() ? b.input(all) : Builder::on_rank(stage, rank));
  }
  b.copy(b.input(all), {stage});
  for (const Rank peer : peers_of(b)) b.signal(peer, {stage});
  for (const Rank peer : peers_of(b)) b.wait(peer, {Builder::on_rank(stage, peer)});
  b.reduce(std::move(sources), {b.output(all)}, Sum::kComplete);
}

// Moves a long message piece by piece: ranks copy inputs in, each adds up its part, all copy the sums out.
class Pipeline {
 public:
  Pipeline(Builder& builder, int pieces) : b_(builder), peers_(peers_of(builder)), pieces_(pieces) {
    const int64_t piece = part_of(b_.elements(), pieces_, 0).size();
    for (Slice& slot : in_) slot = b_.stage(piece);
    for (Slice& slot : sums_) slot = b_.stage(part_of(piece, b_.num_ranks(), 0).size());
  }

  // Signals to a peer, and waits for it, have this order: copied 0, copied 1, reduced 0, copied 2, reduced 1, ..
  void build() {
    for (int step = 0; step < pieces_ + 2; ++step) {
      if (step < pieces_) copy_in(step);
      if (step >= 1 && step - 1 < pieces_) reduce(step - 1);
      if (step >= 2) copy_out(step - 2);
    }
  }

 private:
  Range piece(int k) const { return part_of(b_.elements(), pieces_, k); }
  Range slice(int k, Rank owner) const { return part_of(piece(k), b_.num_ranks(), owner); }
  Slice staged(int k, Range range, Rank owner) const {
    const Slice& slot = in_[k % kDepth];
    return {owner, Space::kStage, slot.begin + range.begin - piece(k).begin, slot.begin + range.end - piece(k).begin};
  }
  Slice sum(int k, Rank owner) const {
    return Builder::on_rank(first_elements(sums_[k % kDepth], slice(k, owner).size()), owner);
  }
  Slice sum_slot(int k, Rank owner) const { return Builder::on_rank(sums_[k % kDepth], owner); }

  void copy_in(int k) {
    const Range mine = slice(k, b_.self());
    for (const Range range : {Range{piece(k).begin, mine.begin}, Range{mine.end, piece(k).end}}) {
      b_.copy(b_.input(range), {staged(k, range, b_.self())});
    }
    // This signal also gives back the peer's sum of piece k - kDepth, which this rank has copied out before.
    for (const Rank peer : peers_) b_.signal(peer, {staged(k, slice(k, peer), b_.self()), sum_slot(k, peer)});
  }

  void reduce(int k) {
    const Range mine = slice(k, b_.self());
    std::vector<Slice> sources;
    for (Rank rank = 0; rank < b_.num_ranks(); ++rank) {
      sources.push_back(rank == b_.self() ? b_.input(mine) : staged(k, mine, rank));
    }
    for (const Rank peer : peers_) b_.wait(peer, {staged(k, mine, peer), sum_slot(k, b_.self())});
    b_.reduce(std::move(sources), {b_.output(mine), sum(k, b_.self())}, Sum::kComplete);
    for (const Rank peer : peers_) b_.signal(peer, {sum(k, b_.self()), Builder::on_rank(in_[k % kDepth], peer)});
  }

  void copy_out(int k) {
    for (const Rank peer : peers_) {
      b_.wait(peer, {sum(k, peer), in_[k % kDepth]});
      b_.copy(sum(k, peer), {b_.output(slice(k, peer))});
    }
  }

  Builder& b_;
  std::vector<Rank> peers_;
  int pieces_;
  Slice in_[kDepth];
  Slice sums_[kDepth];
};

}  // namespace

Schedule all_reduce_staged(const CollectiveRequest& request) {
  Builder b = builder_for(request, "staged");
  if (build_if_alone(b)) return b.finish();
  if (request.bytes() <= kOneShotBytes) {
    one_shot(b);
  } else {
    Pipeline(b, num_pieces(request.elements, request.dtype)).build();
  }
  return b.finish();
}

}  // namespace herd
