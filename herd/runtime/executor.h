// Executes a Program: each lane starts its ops first in, first out (messages with each other rank apart); an op waits
// for exactly the hazards (program/op_dependencies.h), across the end of the loop body too. It holds no strategy: what
// an op does is its binding.
//
// A release among operations that a lane only starts is no job of the lane (program::is_completion): it takes effect as
// soon as what it waits for is over, and no op starts before the releases that can take effect have.
// Lanes advance at the boundaries of compute ops: an op is handed to its lane as soon as everything it depends on has
// been handed to one. On return from run() every op of the step has been handed over and the compute lane is done;
// other lanes may still work, and hazards carry over into the next step.
// Errors: what an op throws comes out of run() or drain() as herd::Error, its message opened by step, op, block,
//   micro-batch and rank; the executor is then of no further use. Where several have failed, the first of this rank's
//   own comes out, before those of operations that failed since.
// Threads: one calling thread, which is also the compute lane on CPU; bindings run on the threads of their
//   lanes, those of releases among operations on whichever thread next starts an op or waits.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/op_dependencies.h"
#include "herd/runtime/bindings.h"

namespace herd::runtime {

// What really ran: microseconds since the executor was made.
struct OpTime {
  int op = 0;  // index into Program::ops
  double begin_us = 0;
  double end_us = 0;
};

// Makes the lane of an op; called once per lane that the program uses, of messages once per other rank.
using LaneFactory = std::function<std::unique_ptr<Lane>(program::Lane)>;
std::unique_ptr<Lane> make_cpu_lane(program::Lane lane);  // compute inline, collectives ready_lane, the rest threads

// Told on the thread of the op's lane.
struct OpListener {
  // An op begins: its step, op, block, micro-batch and rank in words, which take longer to write than a short op; or
  // empty.
  std::function<void(const std::string&)> began = {};
  // An op has thrown; nobody has waited yet for what is in flight: peers may wait for this rank in any group.
  std::function<void(const Error&)> failed = [](const Error&) {};
};

class Executor {
 public:
  // Borrows nothing. Throws kBug if an op has no binding.
  Executor(program::Program program, BindingTable bindings, OpListener listener = {},
           const LaneFactory& lanes = make_cpu_lane);
  ~Executor();  // drains

  void run(int64_t step);
  void drain();  // returns when nothing is in flight; rethrows the first failure

  const program::Program& program() const;
  // Times of the ops of the last step that have ended, an operation that was only started included; those in flight are
  // left out, so call drain() first.
  std::vector<OpTime> times() const;
  // Microseconds that the compute lane stood still for other lanes in the last step.
  double waited_us() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace herd::runtime
