// Trains one rank of a run: builds the model, its program and its memory, resumes, and runs the loop of steps.
//   runs/<name>/   config.toml, run.json, metrics.jsonl, checkpoints/, report.html, trace.json. Rank 0 writes them and
//                  owns the folder meanwhile; a run that is refused writes nothing.
// What a run computes depends on the run file, the number of ranks and the threads of each; samples go by global index.
// Threads: one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "herd/chain/chain_data.h"
#include "herd/chain/model_chain.h"
#include "herd/comm/communicator.h"
#include "herd/spec/run_file.h"
#include "herd/storage/metrics.h"
#include "herd/train/model_source.h"
#include "herd/train/owned_folder.h"

namespace herd::train {

class DedicatedServer;

struct TrainResult {
  int64_t steps_done = 0;  // optimizer steps, resumed ones included
  double loss = 0;         // mean loss of the last step, nats; 0 where no step was left to train
  // A signal or train.max_minutes ended it before the last step; it has saved, if the run saves at all.
  bool stopped = false;
};

// Functions that a training calls on every rank that trains, on the thread that trains unless they say otherwise; each
// may be empty.
struct TrainHooks {
  std::function<void(const StepMetrics&)> step_done = {};  // after each step, with its validation if there was one
  // Asked in each step, before its end. Where any rank says true, all stop after this step and save, as after a signal:
  // the same command goes on from there.
  std::function<bool()> wants_stop = {};
  std::function<void(const std::string& line)> print = {};  // on rank 0: takes the lines of the standard output instead
  // Before each op of a step, with the words of runtime::OpListener::began. Called by the threads of lanes, at once.
  std::function<void(const std::string& op)> op_begins = {};
};

class Trainer {
 public:
  // Collective. Shares the group of `comm`, and sets its deadline to the run's comm.deadline_s. Throws before anything
  // large is allocated: kBadConfig (layout, data, vocabulary, a checkpoint of another run), kOverBudget with the table
  // of what does not fit. `attempt` says whether an earlier start of the same job began the run, which then goes on.
  Trainer(spec::RunFile run, Communicator& comm, const JobAttempt& attempt = {}, TrainHooks hooks = {});
  // Trains a chain of own blocks on own data. Throws as chain_source(), too.
  Trainer(const Chain& chain, const ChainData& data, spec::RunFile run, Communicator& comm,
          const JobAttempt& attempt = {}, TrainHooks hooks = {});
  ~Trainer();

  // Collective: every rank runs the same steps, but for one that only serves (strategy.dedicated_servers). Stops
  // cleanly where any rank's StopSignal asks for it. Throws kBadConfig naming block, rank and step where a loss or
  // gradient is NaN or infinite. Throws kBug where replicas differ, and what the communicator and the checkpoints
  // throw.
  TrainResult run();

 private:
  struct State;
  Trainer(std::shared_ptr<const ModelSource> source, spec::RunFile run, Communicator& comm, const JobAttempt& attempt,
          TrainHooks hooks);
  std::unique_ptr<State> state_;             // null on a rank that only serves
  std::unique_ptr<DedicatedServer> server_;  // null on a rank that trains
};

}  // namespace herd::train

namespace herd {
using train::Trainer;
}  // namespace herd
