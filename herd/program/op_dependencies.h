// Derives what each op waits for from what ops read and write. Two ops are ordered if one writes what the other reads
// or writes, and nothing between them orders them already. Values in one slot count as one: a write to the second value
// waits for the last reader of the first. The result omits the order in which ops of a lane start, which lanes give.
//   An op of an asynchronous lane only starts an operation (a collective, a message), which ends later. So hazards are
//   listed between ops of one lane, too. On a lane that finishes each op before the next, these hazards are met
//   already.
//   Ops on different parts of one value (Op::parts) do not wait for each other. All else counts as whole.
//   A release on such a lane is no job of the lane, since it would hold back the next operation until this one ends. It
//   takes effect as soon as all that it waits for is over.
// Threads: pure.
#pragma once

#include <vector>

#include "herd/program/program.h"

namespace herd::program {

struct Dependency {
  int op = 0;        // index into Program::ops
  int distance = 0;  // steps back: 0 = an op of the same step, 1 = of the step before
  bool operator==(const Dependency&) const = default;
};

// A Queue is a part of a lane whose ops start and end in order. Messages with one other rank are a queue, since
// messages with different ranks do not wait for each other. All other ops of a lane are one queue.
struct Queue {
  Lane lane = Lane::kCompute;
  int axis = kNoAxis, peer = -1;  // for messages, the other rank's index `peer` on the axis; else kNoAxis and -1
  auto operator<=>(const Queue&) const = default;
};
Queue queue_of(const Op& op);  // returns the queue that the op is in

// Tells whether ops of the lane only start operations that end later, as collectives and messages do.
bool is_asynchronous(Lane lane);

// Tells whether the op is a release on such a lane. It is in no queue, and takes effect when what it waits for is over.
bool is_deferred_release(const Op& op);

// Returns the dependencies of each op, by its index. An op has at most one for each queue, the latest. That one implies
// the earlier ones, since queues end in order. Deferred releases are in no queue, so each of them is listed. In the
// first step of a run, dependencies of distance 1 are met from the start.
std::vector<std::vector<Dependency>> dependencies(const Program& step);

}  // namespace herd::program
