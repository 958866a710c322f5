// Which ops of a rank are over before another of its ops starts, however fast its lanes run: the order that lanes,
// hazards (op_dependencies.h) and messages imply, over some repetitions of the step.
//   Every op has a vector clock: per lane of the rank, how many ops of that lane are over when the op starts. Lanes end
//   in order, so op a is over before op b starts exactly if b's clock for a's lane is larger than a's place in it.
//   On a lane whose ops only start operations the one before need not be over when the next starts.
//   A completion is on no lane: it is over as soon as all that it waits for is.
//   Memory O(ops * lanes); before() takes O(1), first_after() O(log ops).
//   Messages with each other rank are a lane of their own here (queue_of), since they do not wait for each other.
//   A receive ends no sooner than its send. So what follows a receive follows the send too, and all that came before it
//   on the sender. The end of a send says nothing:
//   the message may still be on its way.
// Source: Mattern 1989, "Virtual time and global states of distributed systems".
// Threads: reading is safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "herd/program/program.h"

namespace herd::program {

class OpOrder {
 public:
  // `others`: programs of any ranks. Those that `step` exchanges messages with are looked at; where one is missing, its
  // messages order nothing. Ops of repetition k are numbered k * step.ops.size() and on. Throws kBug if the programs
  // wait for each other in a circle.
  OpOrder(const Program& step, int repetitions, std::span<const Program> others = {});

  size_t num_lanes() const { return ops_of_.size(); }                             // that the rank uses
  size_t lane(size_t op) const { return lane_of_[op % lane_of_.size()]; }         // REQUIRES no completion
  int32_t place(size_t op) const { return place_[op]; }                           // on its lane, from 0; likewise
  const std::vector<size_t>& ops_of(size_t lane) const { return ops_of_[lane]; }  // by place

  // How many ops of the lane are over when `op`, which is no completion, starts: those at places [0, over_at()).
  int32_t over_at(size_t op, size_t lane) const { return clocks_[op * num_lanes() + lane]; }
  // The place of the first op of the lane that starts after `op` is over; the lane's length if there is none.
  int32_t first_after(size_t op, size_t lane) const;
  bool before(size_t earlier, size_t later) const;  // REQUIRES that `later` is no completion

 private:
  bool is_completion(size_t op) const { return lane_of_[op % lane_of_.size()] == kNoLane; }
  static constexpr size_t kNoLane = static_cast<size_t>(-1);
  std::vector<std::vector<size_t>> ops_of_;  // by lane, then by place
  std::vector<size_t> lane_of_;              // by op of one repetition
  std::vector<int32_t> place_;               // by op
  std::vector<int32_t> clocks_;              // by op, then by lane
  std::vector<std::vector<size_t>> waits_;   // by completion: ops of lanes that it waits for
};

}  // namespace herd::program
