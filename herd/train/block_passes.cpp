#include "herd/train/block_passes.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "herd/base/elapsed.h"
#include "herd/base/midmean.h"
#include "herd/nn/run_block.h"
#include "herd/strategies/recompute.h"
#include "herd/train/mean_over_ranks.h"

namespace herd::train {
namespace {

using program::OpKind;

constexpr int kBlocks = 2;  // in turn, so that the weights of one don't stay in the cache

}  // namespace

BlockPasses::BlockPasses(const spec::RunFile& run, spec::Layout layout, const runtime::Chain& chain,
                         runtime::FlatParameters& parameters, runtime::WholeWeights& weights, Communicator& comm)
    : run_(run),
      layout_(std::move(layout)),
      chain_(chain),
      parameters_(parameters),
      weights_(weights),
      comm_(comm),
      table_(spec::model_table(run, layout_.micro_batch)) {}

void BlockPasses::run() {
  comm_.barrier({.name = "calibration"});
  totals_.push_back(0);
  loss(forward_and_backward());
  std::vector<double> longest = {totals_.back()};
  comm_.all_reduce(longest, {.op = ReduceOp::kMax, .name = "calibration"});
  longest_.push_back(longest[0]);
  slowest_.push_back(longest[0] / mean_over_ranks(totals_.back(), comm_));
}

void BlockPasses::forget() {
  times_.clear();
  totals_.clear();
  longest_.clear();
  slowest_.clear();
}

std::map<BlockPasses::Op, double> BlockPasses::figures() {
  std::map<Op, double> figures;
  for (const auto& [op, times] : times_) figures[op] = midmean(times);
  for (const OpKind kind : {OpKind::kForward, OpKind::kBackward}) {
    std::vector<double> all;
    for (int b = first_timed(); b < last(); ++b)
      all.insert(all.end(), times_[{kind, b}].begin(), times_[{kind, b}].end());
    for (int b = 1; b < last(); ++b) figures[{kind, b}] = midmean(all) * share(kind, b, last() - 1);
  }
  figures[{OpKind::kLoss, last()}] *= static_cast<double>(layout_.micro_batch) / static_cast<double>(loss_rows());
  for (auto& [op, us] : figures) us = mean_over_ranks(us, comm_);
  pass_us_ = midmean(longest_);
  return figures;
}

double BlockPasses::slowest() const { return midmean(slowest_); }

double BlockPasses::pace() {
  forget();
  run();
  const double now_us = longest_.back();
  forget();
  return now_us / pass_us_;
}

// Times `work` as the op of a block and returns what it gives.
template <typename Work>
auto BlockPasses::time(Op op, const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = work();
  times_[op].push_back(us_since(begin));
  totals_.back() += times_[op].back();
  return result;
}

nn::Context BlockPasses::context(int block, int64_t rows) const {
  nn::Context context;
  context.training = true;
  context.layer = block;
  context.samples.resize(static_cast<size_t>(rows));
  std::iota(context.samples.begin(), context.samples.end(), 0);
  context.weight = 1e-3;
  return context;
}

void BlockPasses::begin_gradients(int block) const {
  for (const auto& group : chain_[block]->groups()) {
    if (group->frozen()) continue;
    parameters_.attach_gradient(parameters_.index_of(*group));
    group->begin_gradient();
  }
}

at::Tensor BlockPasses::made_up_tokens(int64_t rows) const {
  const int64_t count = rows * run_.model.context;
  return at::arange(count, at::kLong).mul_(7919).remainder_(run_.model.vocab).view({rows, -1});
}

int BlockPasses::first_timed() const { return last() - std::min(kBlocks, last() - 1); }

// Of the arithmetic of block `of`, what block b has.
double BlockPasses::share(OpKind kind, int b, int of) const {
  const auto flops = [&](int block) {
    const auto& shape = table_.blocks[static_cast<size_t>(block)];
    const spec::Cost& cost = kind == OpKind::kForward ? shape.forward : shape.backward;
    return cost.matmul_flops + cost.attention_flops;
  };
  return flops(of) > 0 ? flops(b) / flops(of) : 1;
}

bool BlockPasses::computes_again() const {
  return strategies::recompute_interval(run_.strategy.recompute, static_cast<int>(run_.model.layers)) == 1;
}

// As a step runs them: a graph that is used at once is still in the caches. Returns the output of the block before the
// last.
nn::Tuple BlockPasses::forward_and_backward() {
  nn::Tuple x = {made_up_tokens(layout_.micro_batch)};
  std::map<int, nn::Tuple> inputs;
  std::map<int, nn::Graph> graphs;
  std::vector<int> chosen = {0};
  for (int b = first_timed(); b < last(); ++b) chosen.push_back(b);
  for (const int b : chosen) {
    const auto here = context(b, layout_.micro_batch);
    weights_.take(*chain_[b]);
    if (computes_again()) {
      inputs[b] = x;
      x = time({OpKind::kForward, b}, [&] { return nn::run_without_graph(*chain_[b], x, here); });
    } else {
      graphs[b] = time({OpKind::kForward, b}, [&] { return nn::run_forward(*chain_[b], x, here); });
      x = nn::detached(graphs[b].outputs);
    }
    weights_.give_back(*chain_[b]);
  }
  nn::Tuple dy;
  for (const at::Tensor& tensor : x) dy.push_back(at::ones_like(tensor));
  for (auto at = chosen.rbegin(); at != chosen.rend(); ++at) {
    const int b = *at;
    weights_.take(*chain_[b]);
    if (computes_again()) {
      const auto here = context(b, layout_.micro_batch);
      graphs[b] = time({OpKind::kForward, b}, [&] { return nn::run_forward(*chain_[b], inputs[b], here); });
    }
    dy = time({OpKind::kBackward, b}, [&] {
      begin_gradients(b);
      return nn::run_backward(std::move(graphs[b]), dy);
    });
    weights_.give_back(*chain_[b]);
  }
  return x;
}

// As many sequences as fill one chunk of rows; the rest of the micro-batch goes the same way.
int64_t BlockPasses::loss_rows() const {
  const int64_t chunk = spec::loss_chunk_rows(run_.model.vocab, layout_.micro_batch * run_.model.context);
  return std::clamp<int64_t>(chunk / run_.model.context, 1, layout_.micro_batch);
}

void BlockPasses::loss(const nn::Tuple& whole) {
  const int64_t rows = loss_rows();
  nn::Tuple x;
  for (const at::Tensor& tensor : whole) x.push_back(tensor.narrow(0, 0, rows));
  weights_.take(*chain_[last()]);
  comm_.barrier({.name = "calibration"});
  time({OpKind::kLoss, last()}, [&] {
    begin_gradients(last());
    return dynamic_cast<nn::LossBlock&>(*chain_[last()]).loss(x, made_up_tokens(rows), context(last(), rows), true);
  });
  weights_.give_back(*chain_[last()]);
}

}  // namespace herd::train
