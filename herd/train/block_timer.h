// Times the passes over blocks before the first step. It runs a part of the step's program (program/excerpts.h), on
// made-up tokens and activations, in the memory of the step.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/runtime/executor.h"
#include "herd/runtime/model_bindings.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::train {

// A rank runs its first and its last layer, and two between them, whose times it takes for the others. Of a chain of
// own blocks it runs all. Weights do not change; gradients hold no values of use afterwards. run(), block_times_us()
// and slowest_rank_ratio() are collective, and return the same on all ranks. It borrows chain, parameters, groups and
// communicator. Threads: one, beside torch's.
class BlockTimer {
 public:
  using Op = std::pair<program::OpKind, int>;                       // kind and block
  using Example = std::function<runtime::StepInput(int64_t rows)>;  // returns one micro-batch of so many samples

  BlockTimer(const spec::RunFile& run, const spec::Layout& layout, const program::Program& step,
             const runtime::Chain& chain, runtime::FlatParameters& parameters, const runtime::AxisGroups& groups,
             Communicator& comm, Example example);

  void run();              // all ranks begin at the same time
  void discard_warm_up();  // drops all passes so far, which include the first use of pages, libraries and thread pools

  // Returns the microseconds of forward, loss and backward of every block of the model, for one micro-batch: means over
  // the ranks that ran them. A block's time is its FLOP times the mean time per FLOP of the timed blocks of its kind:
  // first layer, last layer, or between. A block without FLOP gets the mean time of a block.
  std::map<Op, double> block_times_us();

  // Returns the time of a run on its slowest rank over the mean of all ranks, each relative to what `block_times_us`
  // give; 1 with one rank. Collectives wait for the slowest rank, which may differ from run to run.
  double slowest_rank_ratio(const std::map<Op, double>& block_times_us);

  double read_us_per_sample() const;  // returns the time of `example` for each of its samples, on this rank

 private:
  runtime::BindingTable bindings();
  double arithmetic(Op op) const;
  double mean_of(program::OpKind kind, int first, int last);

  const spec::RunFile& run_;
  const spec::Layout& layout_;
  const spec::ModelTable table_;
  Communicator& comm_;
  const Example example_;
  runtime::ModelBindings bindings_;
  runtime::Executor executor_;
  std::map<Op, std::vector<double>> times_;  // microseconds of each pass over each block
  std::vector<double> totals_;               // microseconds of all passes of each run
  std::vector<double> reads_;                // microseconds of each example
};

}  // namespace herd::train
