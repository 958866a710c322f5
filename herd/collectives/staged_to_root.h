// Defines how ranks hand what they contribute to a root through stage memory. Each copies it, a piece at a time, into
// two slots of its own stage. The owner of a slot is the rank that contributes through it; held() is the part of a
// slot() that a piece fills. For each piece k and owner, root must wait for held(k, owner), read it, and signal back
// that it is free. It may name slot(k, owner) or held(k, owner) there; the owner waits for its slot.   Threads: pure.
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
      : b_(builder), num_pieces_(herd::num_pieces(longest, dtype)), contribution_(std::move(contribution)) {
    for (Slice& slot : slots_) slot = b_.stage(part_of(longest, num_pieces_, 0).size());
  }

  int num_pieces() const { return num_pieces_; }  // pieces of each contribution; short ones have empty pieces
  // Returns the elements of piece k in the input of `owner`.
  Range piece(int k, Rank owner) const { return part_of(contribution_(owner), num_pieces_, k); }
  // Returns the slot of the stage of `owner` that piece k passes through.
  Slice slot(int k, Rank owner) const {
    return Builder::on_rank(slots_[static_cast<size_t>(k) % slots_.size()], owner);
  }
  // Returns the elements of that slot that piece k fills.
  Slice held(int k, Rank owner) const {
    const Slice whole = slot(k, owner);
    return {owner, Space::kStage, whole.begin, whole.begin + piece(k, owner).size()};
  }

  // Writes all steps of a rank that is not root.
  void hand_over(Rank root) {
    const int slots = static_cast<int>(slots_.size());
    for (int k = 0; k < num_pieces_ + slots; ++k) {
      if (k >= slots) b_.wait(root, {slot(k, b_.self())});  // root has taken piece k - slots
      if (k >= num_pieces_) continue;
      b_.copy(b_.input(piece(k, b_.self())), {held(k, b_.self())});
      b_.signal(root, {held(k, b_.self())});
    }
  }

 private:
  Builder& b_;
  int num_pieces_;
  std::function<Range(Rank)> contribution_;
  std::array<Slice, 2> slots_;
};

}  // namespace herd
