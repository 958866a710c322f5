#include "herd/train/calibrate.h"

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>

#include "herd/base/elapsed.h"
#include "herd/base/median.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/launch/cores.h"
#include "herd/optim/clip.h"
#include "herd/optim/mixed_step.h"
#include "herd/spec/model_table.h"

namespace herd::train {
namespace {

using program::OpKind;
using Clock = std::chrono::steady_clock;

constexpr double kSeconds = 0.1;                 // of a measurement; one call at least
constexpr double kBlockSeconds = 3;              // of all passes over the blocks together, about
constexpr int kFewestTimes = 4, kMostTimes = 7;  // of a pass: the first ones often find a machine that is not awake
constexpr int64_t kElements = 16 << 20;  // of a stream through memory; where there are as many, more than caches hold
constexpr double kUnlikeZero = 1e-3;     // what is moved: processors move zeros faster than anything else
constexpr int kBlocks = 2;               // in turn, so that the weights of one don't stay in the cache

// Microseconds of the fastest call, after one that warms up: what the machine can do.
double best_us(const std::function<void()>& work) {
  work();
  double best = 1e300;
  for (const auto start = Clock::now(); us_since(start) < kSeconds * 1e6;) {
    const auto begin = Clock::now();
    work();
    best = std::min(best, us_since(begin));
  }
  return best;
}

// Mean microseconds of a call. What runs once a step pays for cold caches each time, so the fastest call is not it.
double mean_us(const std::function<void()>& work) {
  const auto begin = Clock::now();
  int64_t calls = 0;
  do {
    work();
    ++calls;
  } while (us_since(begin) < kSeconds * 1e6);
  return us_since(begin) / static_cast<double>(calls);
}

class Measurements {
 public:
  Measurements(const spec::RunFile& run, const spec::Layout& layout, const runtime::Chain& chain,
               runtime::FlatParameters& parameters, runtime::WholeWeights& weights, const optim::Optimizer& optimizer,
               Communicator& comm, int ranks_here)
      : run_(run),
        layout_(layout),
        chain_(chain),
        parameters_(parameters),
        weights_(weights),
        optimizer_(optimizer),
        comm_(comm),
        ranks_here_(ranks_here),
        table_(spec::model_table(run, layout.micro_batch)) {}

  program::Calibration run() {
    const int threads = at::get_num_threads();
    program::Calibration machine;
    machine.cores = launch::usable_cores();
    machine.threads = threads;
    parameters_.gradients().fill_(kUnlikeZero);
    const double matmul = on_all(matmul_flops_per_us()), stream = on_all(stream_bytes_per_us());
    blocks();
    const double update = on_all(update_us_per_element()), norm = on_all(norm_us_per_element());
    const double reduce = on_all(reduce_us_per_byte());

    machine.matmul_flops_per_us = matmul / threads;
    machine.core_bytes_per_us = stream / threads;
    machine.host_bytes_per_us = stream * ranks_here_;
    // Ranks beyond the cores have waited for each other here, and the simulation makes them wait by itself.
    const double alone = std::min(1.0, static_cast<double>(machine.cores) / (threads * ranks_here_));
    parameters_.gradients().zero_();
    for (const auto& [op, us] : figures_) machine.measured_us[op] = on_all(us) * alone;
    machine.update_us_per_element = update * alone;
    machine.norm_us_per_element = norm * alone;
    machine.reduce_us_per_byte = reduce * alone;
    return machine;
  }

 private:
  using Op = std::pair<OpKind, int>;  // and its block

  // The mean over ranks.
  double on_all(double figure) {
    std::vector<double> sum = {figure};
    comm_.all_reduce(sum, {.name = "calibration"});
    return sum[0] / comm_.size();
  }
  int64_t elements() const { return parameters_.gradients().numel(); }
  int64_t states() const { return parameters_.num_states() > 0 ? parameters_.state(0).numel() : kElements; }
  void together() { comm_.barrier({.name = "calibration"}); }

  // Of the feed-forward layer's shape, all three matrices in gradient memory; of fewer rows where that is short, and in
  // memory of their own where gradients are shards of next to nothing.
  double matmul_flops_per_us() {
    const int64_t D = run_.model.width, F = run_.model.ffn, wanted = layout_.micro_batch * run_.model.context;
    const int64_t fit = (elements() - D * F) / (D + F);
    const int64_t rows = fit >= 1 ? std::min(wanted, fit) : std::min<int64_t>(wanted, 64);
    const at::Tensor memory = fit >= 1
                                  ? parameters_.gradients()
                                  : at::full({D * F + rows * (D + F)}, kUnlikeZero, parameters_.gradients().options());
    const auto part = [&](int64_t at, int64_t height, int64_t width) {
      return memory.narrow(0, at, height * width).view({height, width});
    };
    const at::Tensor w = part(0, D, F), x = part(D * F, rows, D);
    at::Tensor y = part(D * F + rows * D, rows, F);
    together();
    return 2.0 * static_cast<double>(rows * D * F) / best_us([&] { at::mm_out(y, x, w); });
  }

  // Adds one region to another.
  double stream_bytes_per_us() {
    const int64_t count = std::min(kElements, elements() / 2);
    at::Tensor to = parameters_.gradients().narrow(0, 0, count);
    const at::Tensor from = parameters_.gradients().narrow(0, count, count);
    together();
    return 3.0 * static_cast<double>(to.nbytes()) / best_us([&] { at::add_out(to, to, from, 0); });
  }

  // Times `work` as the op of a block and returns what it gives.
  template <typename Work>
  auto time(Op op, const Work& work) {
    const auto begin = Clock::now();
    auto result = work();
    times_[op].push_back(us_since(begin));
    return result;
  }

  nn::Context context(int block, int64_t rows) const {
    nn::Context context;
    context.training = true;
    context.layer = block;
    context.samples.resize(static_cast<size_t>(rows));
    std::iota(context.samples.begin(), context.samples.end(), 0);
    context.weight = 1e-3;
    return context;
  }
  void begin_gradients(int block) const {
    for (const auto& group : chain_[block]->groups()) {
      if (group->frozen()) continue;
      parameters_.attach_gradient(parameters_.index_of(*group));
      group->begin_gradient();
    }
  }
  at::Tensor made_up_tokens(int64_t rows) const {
    const int64_t count = rows * run_.model.context;
    return at::arange(count, at::kLong).mul_(7919).remainder_(run_.model.vocab).view({rows, -1});
  }

  // Forward, loss and backward of the first block, of a few before the last, and of the last; several times, of which
  // the median counts. What stands for several is entered for all of them, for those that have other gradients to
  // compute, or none, by their share of the arithmetic.
  void blocks() {
    const int last = static_cast<int>(chain_.size()) - 1, middle = std::min(kBlocks, last - 1);
    const auto pass = [&] { loss(forward_and_backward(last - middle), last); };
    pass();  // pages, libraries and thread pools awake
    times_.clear();
    together();
    const auto begin = Clock::now();
    pass();
    const double seconds = on_all(us_since(begin)) / 1e6;
    const int more = std::clamp(static_cast<int>(kBlockSeconds / seconds), kFewestTimes, kMostTimes) - 1;
    for (int i = 0; i < more; ++i) {
      together();
      pass();
    }
    for (auto& [op, times] : times_) figures_[op] = median(times);
    for (const OpKind kind : {OpKind::kForward, OpKind::kBackward}) {
      std::vector<double> all;
      for (int b = last - middle; b < last; ++b)
        all.insert(all.end(), times_[{kind, b}].begin(), times_[{kind, b}].end());
      for (int b = 1; b < last; ++b) figures_[{kind, b}] = median(all) * share(kind, b, last - 1);
    }
    figures_[{OpKind::kLoss, last}] *= static_cast<double>(layout_.micro_batch) / static_cast<double>(loss_rows());
  }

  // Of the arithmetic of block `of`, what block b has.
  double share(OpKind kind, int b, int of) const {
    const auto flops = [&](int block) {
      const auto& shape = table_.blocks[static_cast<size_t>(block)];
      const spec::Cost& cost = kind == OpKind::kForward ? shape.forward : shape.backward;
      return cost.matmul_flops + cost.attention_flops;
    };
    return flops(of) > 0 ? flops(b) / flops(of) : 1;
  }

  // Of block 0 and those from `first` to the one before the last, as a step runs them. Returns the last one's output.
  nn::Tuple forward_and_backward(int first) {
    nn::Tuple x = {made_up_tokens(layout_.micro_batch)};
    std::map<int, nn::Graph> graphs;
    std::vector<int> chosen = {0};
    for (int b = first; b + 1 < static_cast<int>(chain_.size()); ++b) chosen.push_back(b);
    for (const int b : chosen) {
      const auto here = context(b, layout_.micro_batch);
      weights_.take(*chain_[b]);
      graphs[b] = time({OpKind::kForward, b}, [&] { return nn::run_forward(*chain_[b], x, here); });
      x = nn::detached(graphs[b].outputs);
      weights_.give_back(*chain_[b]);
    }
    nn::Tuple dy;
    for (const at::Tensor& tensor : x) dy.push_back(at::ones_like(tensor));
    for (auto at = chosen.rbegin(); at != chosen.rend(); ++at) {
      const int b = *at;
      weights_.take(*chain_[b]);
      dy = time({OpKind::kBackward, b}, [&] {
        begin_gradients(b);
        return nn::run_backward(std::move(graphs[b]), dy);
      });
      weights_.give_back(*chain_[b]);
    }
    return x;
  }

  // As many sequences as fill one chunk of rows; the rest of the micro-batch goes the same way.
  int64_t loss_rows() const {
    const int64_t chunk = spec::loss_chunk_rows(run_.model.vocab, layout_.micro_batch * run_.model.context);
    return std::clamp<int64_t>(chunk / run_.model.context, 1, layout_.micro_batch);
  }
  void loss(const nn::Tuple& whole, int last) {
    const int64_t rows = loss_rows();
    nn::Tuple x;
    for (const at::Tensor& tensor : whole) x.push_back(tensor.narrow(0, 0, rows));
    weights_.take(*chain_[last]);
    together();
    time({OpKind::kLoss, last}, [&] {
      begin_gradients(last);
      return dynamic_cast<nn::LossBlock&>(*chain_[last]).loss(x, made_up_tokens(rows), context(last, rows), true);
    });
    weights_.give_back(*chain_[last]);
  }

  // Of one thread. On gradients alone: what a gradient holds is void until the first step. A master copy is made up.
  double update_us_per_element() {
    const int64_t count = std::min({kElements, elements() / 2, states()});
    const at::Tensor weights = parameters_.gradients().narrow(0, 0, count),
                     gradient = parameters_.gradients().narrow(0, count, count);
    const bool mixed = parameters_.has_master();
    optim::Shard shard{.weights = mixed ? at::full({count}, kUnlikeZero) : weights, .gradient = {}, .states = {}};
    for (int k = 0; k < parameters_.num_states(); ++k) shard.states.push_back(parameters_.state(k).narrow(0, 0, count));
    const optim::StepOptions options{.step = 0, .rate = 1e-3};
    together();
    const double us = mean_us([&] {
      optim::mixed_step(optimizer_, {mixed ? weights : at::Tensor(), gradient, shard}, options);
    });
    for (const at::Tensor& state : shard.states) state.zero_();
    return us / static_cast<double>(count);
  }
  double norm_us_per_element() {
    const at::Tensor part = parameters_.gradients().narrow(0, 0, std::min(kElements, elements()));
    together();
    return mean_us([&] { optim::gradient_squares(part); }) / static_cast<double>(part.numel());
  }
  // Of buckets, where there is anybody to reduce with.
  double reduce_us_per_byte() {
    if (comm_.size() == 1) return 0;
    const int64_t element = static_cast<int64_t>(parameters_.gradients().element_size());
    const int64_t count = std::clamp<int64_t>(run_.strategy.bucket / element, 1, elements());
    parameters_.gradients().fill_(kUnlikeZero);
    // One bucket after the other, as a step reduces them: none is in a cache.
    int64_t at = 0;
    const std::string algorithm = run_.comm.algorithm == "auto" ? "" : run_.comm.algorithm;
    const auto reduce = [&] {
      at::Tensor bucket = parameters_.gradients().narrow(0, at, count);
      comm_.all_reduce(bucket, {.name = "calibration", .algorithm = algorithm});
      at = at + 2 * count <= elements() ? at + count : 0;
    };
    reduce();
    together();
    const auto begin = Clock::now();
    constexpr int kTimes = 3;
    for (int i = 0; i < kTimes; ++i) reduce();
    return us_since(begin) / kTimes / static_cast<double>(element * count);
  }

  const spec::RunFile& run_;
  const spec::Layout& layout_;
  const runtime::Chain& chain_;
  runtime::FlatParameters& parameters_;
  runtime::WholeWeights& weights_;
  const optim::Optimizer& optimizer_;
  Communicator& comm_;
  int ranks_here_;
  const spec::ModelTable table_;
  std::map<Op, std::vector<double>> times_;  // microseconds of each pass
  std::map<Op, double> figures_;             // their medians
};

}  // namespace

program::Calibration calibrate(const spec::RunFile& run, const spec::Layout& layout, const runtime::Chain& chain,
                               runtime::FlatParameters& parameters, runtime::WholeWeights& weights,
                               const optim::Optimizer& optimizer, Communicator& comm, int ranks_here) {
  return Measurements(run, layout, chain, parameters, weights, optimizer, comm, ranks_here).run();
}

}  // namespace herd::train
