// Executes a Program. Each lane starts its ops first in, first out; messages to and from each other rank have a lane of
// their own. An op waits for exactly the hazards (program/op_dependencies.h), also across the end of the loop body. The
// executor knows no strategy: what an op does is its binding.
//
// A release of what a started operation reads is no job of its lane (program::is_completion). It takes effect as soon
// as the ops that it waits for are over, and no op starts before the releases that can take effect.
// The executor submits ops at the boundaries of compute ops: an op goes to its lane as soon as all ops that it depends
// on have gone to theirs. On return from run() all ops of the step have been submitted and the compute lane is done.
// Other lanes may still work, and hazards carry over into the next step.
// Errors: run() and drain() throw what an op has thrown, as herd::Error; its message begins with step, op, block,
//   micro-batch and rank. The executor can't be used afterwards. Where several ops have failed, they throw the first
//   failure of this rank's own, before those of operations that failed because of it.
// Threads: one calling thread, which is also the compute lane on CPU. Bindings run on the threads of their lanes;
//   releases of what a started operation reads run on whichever thread next starts an op or waits.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "herd/base/error.h"
#include "herd/program/op_dependencies.h"
#include "herd/runtime/bindings.h"

namespace herd::runtime {

// Holds when an op ran, in microseconds since the executor was made.
struct OpTime {
  int op = 0;  // index into Program::ops
  double begin_us = 0;
  double end_us = 0;
};

// Makes a lane; called once for each lane that the program uses, and for messages once for each other rank.
using LaneFactory = std::function<std::unique_ptr<Lane>(program::Lane)>;
std::unique_ptr<Lane> make_cpu_lane(program::Lane lane);  // compute inline, collectives ready_lane, the rest threads

// Receives the events of ops, on the thread of the op's lane.
struct OpListener {
  // Called when an op begins, with its step, op, block, micro-batch and rank as text. It may be empty, since writing
  // the text takes longer than a short op.
  std::function<void(const std::string&)> began = {};
  // Called when an op has thrown, before anything waits for operations in flight: peers may wait for this rank in any
  // group.
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
  // Returns the times of the ops of the last step that have ended, also of operations that a lane only started. It
  // leaves out those in flight, so call drain() first.
  std::vector<OpTime> times() const;
  // Returns the microseconds that the compute lane waited for other lanes in the last step.
  double waited_us() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace herd::runtime
