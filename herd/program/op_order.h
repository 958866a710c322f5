// Tells which ops of a rank are over before another of its ops starts, however fast its lanes run. That order follows
// from lanes, hazards (op_dependencies.h) and messages, over some repetitions of the step.
//   Messages with each other rank are a lane of their own here (op_dependencies.h: queue_of), since they do not wait
//   for each other.
//   Every op has a vector clock, which counts for each lane of the rank how many ops of that lane are over when the op
//   starts. Lanes end in order. So op a is over before op b starts exactly if b's clock for a's lane is larger than a's
//   index on that lane.
//   On a lane whose ops only start operations, the op before need not be over when the next starts.
//   The executor hands over a step when the compute lane is done with the step before (runtime/executor.h). So every op
// follows the compute lane's ops of the repetition before.
//   A deferred release is on no lane: it is over as soon as all that it waits for is over.
//   A receive ends no sooner than its send. So what follows a receive also follows the send, and all that the sender
//   did before. The end of a send orders nothing, since the message may still be on its way.
// The order takes O(ops * lanes) memory. ends_before() takes O(1) time, first_started_after() O(log ops).
// Source: Mattern 1989, "Virtual time and global states of distributed systems".
// Threads: made by one thread; its functions are safe from any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "herd/program/program.h"

namespace herd::program {

class OpOrder {
 public:
  // `others` are programs of any ranks, of which those that `step` exchanges messages with count. Messages with a rank
  // that is missing order nothing. Op i of repetition k has the number k * step.ops.size() + i. The programs are not
  // kept. Throws kBug if they wait for each other in a circle.
  OpOrder(const Program& step, int repetitions, std::span<const Program> others = {});

  size_t num_lanes() const { return ops_of_.size(); }  // counts the lanes that the rank uses
  // Returns the lane of an op, in [0, num_lanes()). REQUIRES that the op is no deferred release.
  size_t lane(size_t op) const { return lane_of_[op % lane_of_.size()]; }
  // Returns how many ops of its lane are before the op. REQUIRES that the op is no deferred release.
  int32_t index_on_lane(size_t op) const { return index_[op]; }
  const std::vector<size_t>& ops_of(size_t lane) const { return ops_of_[lane]; }  // returns the lane's ops in order

  // Counts the ops of the lane that are over when `op` starts: those at indices [0, num_ended_before()). REQUIRES that
  // `op` is no deferred release.
  int32_t num_ended_before(size_t op, size_t lane) const { return clocks_[op * num_lanes() + lane]; }
  // Returns the index of the lane's first op that starts after `op` is over; the lane's length if there is none.
  int32_t first_started_after(size_t op, size_t lane) const;
  // Tells whether `earlier` is surely over before `later` starts. REQUIRES that `later` is no deferred release.
  bool ends_before(size_t earlier, size_t later) const;

 private:
  bool is_deferred_release(size_t op) const { return lane_of_[op % lane_of_.size()] == kNoLane; }
  static constexpr size_t kNoLane = static_cast<size_t>(-1);
  std::vector<std::vector<size_t>> ops_of_;  // ops by lane, then by index
  std::vector<size_t> lane_of_;              // lane by op of one repetition; kNoLane for a deferred release
  std::vector<int32_t> index_;               // index on its lane, by op
  std::vector<int32_t> clocks_;              // ops that are over, by op, then by lane
  std::vector<std::vector<size_t>>
      waits_;  // ops of lanes that a deferred release waits for, by op; empty for other ops
};

}  // namespace herd::program
