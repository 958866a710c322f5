// Defines what an op waits for, derived from what ops read and write. Lanes start their ops in order; that is not
// listed. Two ops are ordered if one writes what the other reads or writes, and nothing between them orders them
// already. Two of one lane too: an op may only start an operation (a collective), and the next one on its lane may not
// touch what that is at work on. Whoever runs the ops of a lane from end to end has nothing to wait for there. Values
// in one slot are one thing: writing the second waits for the last reader of the first.
// Operations of lanes that only start them may be under way together, so a release there is no job of its lane, which
// would hold back the next operation until this one is over: it is a completion, and takes effect as soon as all that
// it waits for is over. Threads: pure.
#pragma once

#include <vector>

#include "herd/program/program.h"

namespace herd::program {

struct Dependency {
  int op = 0;        // index into Program::ops
  int distance = 0;  // 0 = in this step, 1 = in the step before
  bool operator==(const Dependency&) const = default;
};

// The ops of a lane that start and end in order: all of them, but of messages those with one other rank. Messages with
// different ranks do not wait for each other.
struct Queue {
  Lane lane = Lane::kCompute;
  int axis = kNoAxis, peer = -1;  // of a message, the other rank: its index on the axis; -1 = no message
  auto operator<=>(const Queue&) const = default;
};
Queue queue_of(const Op& op);

// Whether ops of the lane only start operations that end later: collectives and messages.
bool starts_only(Lane lane);

// A release on such a lane.
bool is_completion(const Op& op);

// Per op, at most one dependency per queue: the latest, which implies the earlier ones, since queues end in order too.
// Completions are no part of that order, so each is listed. In the first step those of distance 1 are met from the
// start.
std::vector<std::vector<Dependency>> dependencies(const Program& step);

}  // namespace herd::program
