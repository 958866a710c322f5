// Executes a Program. Each lane starts its ops first in, first out; the messages to and from one peer form a queue of
// their own. An op waits for exactly its hazards (program/op_dependencies.h), across the end of the loop body too. The
// executor holds no strategy: bindings say what ops do.
//
// An op is handed to its lane as soon as everything it depends on has been handed to one. Other lanes are looked at
// after each compute op. When run() returns, every op of the step has been handed over, and the compute lane is done.
// Other lanes may still work, and hazards carry over into the next step.
// A release on an asynchronous lane is no job of the lane (program::is_deferred_release). It takes effect as soon as
// what it waits for is over. Releases that can take effect do so before any op starts.
// Errors: run() or drain() throws what an op threw, as herd::Error. Its message opens with step, op, block, micro-batch
// and rank. After that, only drain() and the destructor may be called. If several ops have failed, an error that this
// rank made itself is thrown rather than those that followed from it.
// Threads: one calling thread, which is also the compute lane on a CPU. Bindings run on the threads of their lanes.
// Those of releases on asynchronous lanes run on whichever thread next starts an op or waits.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <c10/core/Device.h>

#include "herd/base/error.h"
#include "herd/program/op_dependencies.h"
#include "herd/runtime/bindings.h"

namespace herd::runtime {

// Says when an op ran, in microseconds since the executor was made.
struct OpTime {
  int op = 0;  // index into Program::ops
  double begin_us = 0;
  double end_us = 0;
};

// Makes a lane. The executor calls it once for each lane of the program, and for messages once for each other rank.
using LaneFactory = std::function<std::unique_ptr<Lane>(program::Lane)>;
// Returns inline_lane for compute, ready_lane for collectives and messages, thread_lane for the rest (lane.h).
std::unique_ptr<Lane> make_cpu_lane(program::Lane lane);

// Returns the lanes of a step: those of make_cpu_lane(), but threads for reductions that work between their messages,
// and for pushes and pulls.
LaneFactory cpu_lanes_of(const program::Program& step);
// Returns those of a step on a device: the calling thread's stream for compute, threads with streams of their own for
// the rest, plain threads for the host's arithmetic, files, pushes and pulls. On the CPU they are those of
// cpu_lanes_of().
LaneFactory lanes_of(const program::Program& step, c10::Device device);

// Functions that the threads of lanes call.
struct OpListener {
  // Called when an op begins, with "step 7: backward of block3 mb1 on rank 2 (pp 1)". May be empty: writing these words
  // takes longer than a short op.
  std::function<void(const std::string&)> began = {};
  // Called with the first error that an op of this rank throws, before anybody waits for what is in flight. Peers may
  // wait for this rank in any group, so this is the place to tell them. Must not be empty.
  std::function<void(const Error&)> failed = [](const Error&) {};
};

class Executor {
 public:
  // Without `lanes` it has those of cpu_lanes_of(). Keeps its own program, bindings and listener; what these refer to
  // must outlive it. Throws kBug if an op has no binding.
  Executor(program::Program program, BindingTable bindings, OpListener listener = {}, const LaneFactory& lanes = {});
  ~Executor();  // waits until nothing is in flight, and throws nothing

  // Runs the loop body once. Bindings get the number `step`, and error messages show it. Throws kBug if ops wait for
  // each other in a circle.
  void run(int64_t step);
  void drain();  // returns when nothing is in flight; throws the first failure

  const program::Program& program() const;
  // Returns when the newest run of each op began and ended, where it has ended. An operation ends when it completes.
  // Call drain() first to have all of them.
  std::vector<OpTime> times() const;
  double waited_us() const;  // returns the microseconds of the last step in which the compute lane waited for others

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace herd::runtime
