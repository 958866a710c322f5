// The passes over blocks that a step is made of, timed before there is one: a part of its program
// (program/excerpts.h), run on made-up tokens and activations, in the memory of the step.
#pragma once

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

// Of its layers a rank runs the first and the last one of the model, and two between them, which stand for all of
// those. Weights stay, gradients are void afterwards. What runs passes or asks for figures is collective, and gives the
// same on all ranks. Borrows chain, parameters, groups and communicator.   Threads: one, beside torch's.
class BlockTimer {
 public:
  using Op = std::pair<program::OpKind, int>;  // and its block

  BlockTimer(const spec::RunFile& run, const spec::Layout& layout, const program::Program& step,
             const runtime::Chain& chain, runtime::FlatParameters& parameters, const runtime::AxisGroups& groups,
             Communicator& comm);

  void run();     // ranks begin together
  void forget();  // all passes so far: they woke pages, libraries and thread pools

  // Microseconds of forward, loss and backward of every block of the model, for one micro-batch: means over the ranks
  // that ran them, and of blocks that nobody ran by their share of the arithmetic.
  std::map<Op, double> figures();

  // How much longer a pass takes on the slowest rank than these figures say: who that is changes, but ranks that meet
  // wait for it. 1 with one rank.
  double slowest(const std::map<Op, double>& figures);

 private:
  runtime::BindingTable bindings();
  double arithmetic(Op op) const;
  double mean_of(program::OpKind kind, int first, int last);

  const spec::RunFile& run_;
  const spec::Layout& layout_;
  const spec::ModelTable table_;
  Communicator& comm_;
  runtime::ModelBindings bindings_;
  runtime::Executor executor_;
  std::map<Op, std::vector<double>> times_;  // microseconds of each pass
  std::vector<double> totals_;               // and their sums
};

}  // namespace herd::train
