// Writes the steps of one rank; every collective algorithm uses it.
//
//   Builder b(header);                                     // who, what, how many; no steps yet
//   b.send(next, b.input(chunk));
//   b.receive_reduce(previous, b.output(chunk), b.input(chunk), Sum::kComplete);
//   return b.finish();
//
// Steps that move nothing (empty slices) are left out, on both sides alike. input() is the caller's input wherever it
// lies: in place it is a part of kOutput. A composition (hierarchical, torus) builds the schedules of its sub-groups
// and adds their steps with ranks and slices mapped: add() takes any step. Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/schedule/message_layout.h"
#include "herd/schedule/parts.h"
#include "herd/schedule/schedule.h"

namespace herd {

enum class Sum : uint8_t { kPartial, kComplete };  // kComplete: the sum has all contributions, and average divides here

class Builder {
 public:
  // Takes everything of `header` but its steps and its scratch and stage sizes. Sets `accumulate` (fp32 for 16-bit
  // floats, else the dtype). Throws kBadConfig if self, num_ranks, root, elements or counts make no sense.
  explicit Builder(Schedule header);

  Rank self() const { return schedule_.self; }
  int num_ranks() const { return schedule_.num_ranks; }
  int64_t elements() const { return schedule_.elements; }
  Rank neighbor(int distance) const;  // returns (self + distance) mod num_ranks; distance may be negative
  Range part(int index) const { return layout_.part(index); }
  int64_t longest_part() const { return layout_.longest_part(); }
  const MessageLayout& layout() const { return layout_; }

  // The next functions return slices of a rank (default: self). `range` counts in elements of the whole message for
  // input and output alike. The input of (all-)gather and the output of (reduce-)scatter hold the owner's part alone,
  // so `range` lies in that part. For all_to_all it counts in the owner's input or output; sent() and received() return
  // its parts.
  Slice input(Range range) const { return input(range, self()); }
  Slice input(Range range, Rank owner) const;
  Slice output(Range range) const { return output(range, self()); }
  Slice output(Range range, Rank owner) const;
  Slice sent(Rank from, Rank to) const { return input(layout_.sent(from, to), from); }
  Slice received(Rank from, Rank to) const { return output(layout_.received(from, to), to); }
  Slice scratch(int64_t elements);  // takes fresh private memory
  Slice stage(int64_t elements);    // takes fresh shared memory; at one offset if all ranks make the same calls
  static Slice on_rank(Slice slice, Rank owner);  // returns the same elements and space on rank `owner`

  // The next functions add a step; StepKind (schedule.h) says what it does. Its slices have one size.
  void send(Rank peer, Slice source);
  void receive(Rank peer, Slice target);
  void receive_reduce(Rank peer, Slice target, Slice source, Sum sum);
  void copy(Slice source, std::vector<Slice> targets);
  void reduce(std::vector<Slice> sources, std::vector<Slice> targets, Sum sum);
  // Hands slices over to the peer, which takes them with wait(). They may differ in size; empty ones are left out.
  void signal(Rank peer, std::vector<Slice> handed_over);
  void wait(Rank peer, std::vector<Slice> handed_over);
  // Passes a message of no elements. For the order of steps, the send reads these slices and the receive writes them.
  void send_empty(Rank peer, std::vector<Slice> order_only);
  void receive_empty(Rank peer, std::vector<Slice> order_only);

  void add(Step step) { schedule_.steps.push_back(std::move(step)); }
  void reserve_scratch(int64_t elements);  // takes at least so many, for steps given to add()
  void reserve_stage(int64_t elements);
  Schedule finish() { return std::move(schedule_); }

 private:
  Schedule schedule_;
  MessageLayout layout_;
};

}  // namespace herd
