// The blocks' own forward, loss and backward on made-up tokens, timed beside the other ranks: what a step is made of,
// measured before there is one, and again between two.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/program/program.h"
#include "herd/runtime/flat_parameters.h"
#include "herd/runtime/model_bindings.h"
#include "herd/runtime/whole_weights.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::train {

// A pass goes over the first block, two of the transformer blocks, which stand for all, and the last one; one chunk of
// rows stands for the whole loss. Where every block is computed again before its backward, so it is here. Weights stay,
// gradients are void afterwards; it takes no more memory than a step does. Borrows its arguments, but for the layout.
// What runs passes or asks for figures is collective, and gives means over ranks, the same on all of them. Uses torch's
// threads.
class BlockPasses {
 public:
  using Op = std::pair<program::OpKind, int>;  // and its block

  BlockPasses(const spec::RunFile& run, spec::Layout layout, const runtime::Chain& chain,
              runtime::FlatParameters& parameters, runtime::WholeWeights& weights, Communicator& comm);

  // Ranks begin together.
  void run();
  void forget();  // all passes so far: they woke pages, libraries and thread pools

  // Microseconds of forward, loss and backward of every block, for one micro-batch. Of blocks that were not timed: by
  // their share of the arithmetic, since some have other gradients to compute, or none.
  std::map<Op, double> figures();

  // The time of a pass on the slowest rank over its mean on all: who that is changes, but ranks that meet wait for it.
  // The same on all ranks; 1 with one.
  double slowest() const;

  // Microseconds of the timed ops of a pass on the slowest rank, as figures() found them.
  double pass_us() const { return pass_us_; }

  // One pass more: how many times as long as pass_us() it takes. REQUIRES figures() before, no step in flight.
  double pace();

 private:
  template <typename Work>
  auto time(Op op, const Work& work);
  nn::Context context(int block, int64_t rows) const;
  void begin_gradients(int block) const;
  at::Tensor made_up_tokens(int64_t rows) const;
  int last() const { return static_cast<int>(chain_.size()) - 1; }
  int first_timed() const;
  double share(program::OpKind kind, int block, int of) const;
  int64_t loss_rows() const;
  bool computes_again() const;
  nn::Tuple forward_and_backward();
  void loss(const nn::Tuple& whole);

  const spec::RunFile& run_;
  const spec::Layout layout_;
  const runtime::Chain& chain_;
  runtime::FlatParameters& parameters_;
  runtime::WholeWeights& weights_;
  Communicator& comm_;
  const spec::ModelTable table_;
  std::map<Op, std::vector<double>> times_;  // microseconds of each pass
  std::vector<double> totals_;               // their sums,
  std::vector<double> longest_;              // on the slowest rank,
  std::vector<double> slowest_;              // and that over the mean of all
  double pass_us_ = 0;
};

}  // namespace herd::train
