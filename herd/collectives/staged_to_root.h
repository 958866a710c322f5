// Defines how ranks hand what they contribute to a root through stage memory. Each copies it, a piece at a time, into
// two slots of its own stage. The root takes it and gives the slot back.   Threads: pure.
#pragma once

#include <array>
#include <functional>

#include "herd/collectives/direct.h"
#include "herd/collectives/staging.h"

namespace herd {

class StagedToRoot {
 public:
  // `contribution(rank)` returns the elements of its input that a rank hands over; `longest` is the most of any rank.
  StagedToRoot(Builder& builder, DType dtype, int64_t longest, std::function<Range(Rank)> contribution)
      : b_(builder), count_(num_pieces(longest, dtype)), contribution_(std::move(contribution)) {
    for (Slice& slot : slots_) slot = b_.stage(part_of(longest, count_, 0).size());
  }

  int count() const { return count_; }
  Range piece(int k, Rank owner) const { return part_of(contribution_(owner), count_, k); }
  Slice slot(int k, Rank owner) const { return Builder::of(slots_[static_cast<size_t>(k) % slots_.size()], owner); }
  Slice held(int k, Rank owner) const {  // piece k in its slot
    const Slice whole = slot(k, owner);
    return {owner, Space::kStage, whole.begin, whole.begin + piece(k, owner).size()};
  }

  // Writes all steps of a rank that is not root.
  void hand_over(Rank root) {
    const int slots = static_cast<int>(slots_.size());
    for (int k = 0; k < count_ + slots; ++k) {
      if (k >= slots) b_.wait(root, {slot(k, b_.self())});  // root has taken piece k - slots
      if (k >= count_) continue;
      b_.copy(b_.input(piece(k, b_.self())), {held(k, b_.self())});
      b_.signal(root, {held(k, b_.self())});
    }
  }

 private:
  Builder& b_;
  int count_;
  std::function<Range(Rank)> contribution_;
  std::array<Slice, 2> slots_;
};

}  // namespace herd
