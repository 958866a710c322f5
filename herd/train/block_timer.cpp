#include "herd/train/block_timer.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <map>

#include "herd/base/elapsed.h"
#include "herd/base/midmean.h"
#include "herd/program/excerpts.h"
#include "herd/program/passes.h"
#include "herd/spec/build_model_table.h"
#include "herd/train/peer_listener.h"

namespace herd::train {
namespace {

using program::OpKind;
using runtime::Clock;

constexpr int kLayers = 2;  // layers that are timed in turn, so that the weights of one don't stay in the cache
constexpr double kActivation = 1e-2, kWeight = 1e-3;
constexpr uint64_t kSeed = 1;

// Returns the blocks of the first and the last layer, and of kLayers layers between.
std::set<int> chosen_blocks(const program::Program& step, const spec::ModelTable& table, bool is_own_chain) {
  std::map<int, std::set<int>> layers;  // the blocks of each that this rank runs
  for (const program::Op& op : step.ops) {
    if (op.kind == OpKind::kForward || op.kind == OpKind::kLoss)
      layers[table.blocks[static_cast<size_t>(op.block)].layer].insert(op.block);
  }
  std::set<int> chosen;
  int between = 0;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    const bool is_outer = layer->first == 0 || layer->first == table.blocks.back().layer;
    if (is_own_chain || is_outer || between++ < kLayers) chosen.merge(layer->second);
  }
  return chosen;
}

// Returns the kind that an op is timed as. A recomputed graph takes as long as its forward; the second half of a
// backward or a loss belongs to the first.
OpKind timed_as(const program::Op& op, const spec::BlockShape& block) {
  if (op.kind == OpKind::kRecompute) return OpKind::kForward;
  if (op.kind == OpKind::kBackwardWeight) return block.is_loss() ? OpKind::kLoss : OpKind::kBackward;
  return op.kind;
}

}  // namespace

BlockTimer::BlockTimer(const spec::RunFile& run, const spec::Layout& layout, const program::Program& step,
                       const runtime::Chain& chain, runtime::FlatParameters& parameters,
                       const runtime::AxisGroups& groups, Communicator& comm, Example example)
    : run_(run),
      layout_(layout),
      table_(spec::program_table(run, layout.micro_batch)),
      comm_(comm),
      example_(std::move(example)),
      bindings_(chain, parameters, groups, {}, {.width = run.model.width, .table = &table_}),
      executor_(program::passes_over(step, chosen_blocks(step, table_, run.chain != nullptr)), bindings(),
                peer_listener(groups.world()), bindings_.lanes_of(step)) {}

runtime::BindingTable BlockTimer::bindings() {
  runtime::BindingTable table = bindings_.table();
  table[OpKind::kReceive] = [this](const program::Op& op, int64_t) -> runtime::EventPtr {
    const at::Tensor activation = bindings_.empty(op.writes[0]);
    // Rows that differ, so that a router does not send all of them to the same experts.
    if (activation.is_cpu() && activation.is_floating_point())
      activation.normal_(0, kActivation, at::make_generator<at::CPUGeneratorImpl>(kSeed));
    else
      activation.fill_(kActivation);
    bindings_.set_tensor(op.writes[0], activation);
    return nullptr;
  };
  return table;
}

void BlockTimer::run() {
  const auto begin = Clock::now();
  runtime::StepInput input = example_(layout_.micro_batch);
  reads_.push_back(us_since(begin));
  input.weight = kWeight;
  bindings_.begin_step(std::move(input));
  comm_.barrier({.name = "calibration"});
  executor_.run(0);
  executor_.drain();
  totals_.push_back(0);
  for (const runtime::OpTime& time : executor_.times()) {
    const program::Op& op = executor_.program().ops[static_cast<size_t>(time.op)];
    if (!is_pass(op)) continue;
    auto& times = times_[{timed_as(op, table_.blocks[static_cast<size_t>(op.block)]), op.block}];
    if (op.kind == OpKind::kBackwardWeight)  // the second half of the backward before it
      times.back() += time.end_us - time.begin_us;
    else
      times.push_back(time.end_us - time.begin_us);
    totals_.back() += time.end_us - time.begin_us;
  }
}

void BlockTimer::discard_warm_up() {
  times_.clear();
  totals_.clear();
  reads_.clear();
}

double BlockTimer::read_us_per_sample() const { return midmean(reads_) / static_cast<double>(layout_.micro_batch); }

double BlockTimer::arithmetic(Op op) const {
  const auto& shape = table_.blocks[static_cast<size_t>(op.second)];
  const spec::PassCost& cost = op.first == OpKind::kBackward ? shape.backward : shape.forward;
  return cost.matmul_flops + cost.attention_flops;
}

// Returns the mean time of blocks [first, last] over all ranks: us per FLOP, or per block where they do none.
double BlockTimer::mean_of(OpKind kind, int first, int last) {
  std::vector<double> sums = {0, 0, 0};  // microseconds, flops, blocks
  for (int b = first; b <= last; ++b) {
    const auto timed = times_.find({kind, b});
    if (timed == times_.end()) continue;
    sums[0] += midmean(timed->second);
    sums[1] += arithmetic(timed->first);
    sums[2] += 1;
  }
  comm_.all_reduce(sums, {.name = "calibration"});
  const double divisor = sums[1] > 0 ? sums[1] : sums[2];
  return divisor > 0 ? sums[0] / divisor : 0;
}

std::map<BlockTimer::Op, double> BlockTimer::block_times_us() {
  std::map<Op, double> figures;
  const int last = static_cast<int>(table_.blocks.size()) - 1;
  const auto fill = [&](OpKind kind, int from, int to) {
    const double mean = mean_of(kind, from, to);
    for (int b = from; b <= to; ++b) {
      const double flops = arithmetic({kind, b});
      figures[{kind, b}] = mean * (flops > 0 ? flops : 1);
    }
  };
  int first_layer_end = 0, last_layer_begin = 0;  // numbers of blocks
  for (const spec::BlockShape& block : table_.blocks) {
    first_layer_end += block.layer == 0 ? 1 : 0;
    last_layer_begin += block.layer < table_.blocks.back().layer ? 1 : 0;
  }
  for (const OpKind kind : {OpKind::kForward, OpKind::kBackward}) {
    for (int b = 0; run_.chain && b < last; ++b) fill(kind, b, b);
    if (run_.chain) continue;
    fill(kind, 0, first_layer_end - 1);
    fill(kind, first_layer_end, last_layer_begin - 1);
    if (last_layer_begin < last) fill(kind, last_layer_begin, last - 1);
  }
  fill(OpKind::kLoss, last, last);
  return figures;
}

double BlockTimer::slowest_rank_ratio(const std::map<Op, double>& figures) {
  double expected = 0;
  for (const auto& [op, times] : times_)
    expected += figures.at(op) * static_cast<double>(times.size()) / static_cast<double>(totals_.size());
  std::vector<double> longest;
  for (const double total : totals_) longest.push_back(expected > 0 ? total / expected : 0);
  std::vector<double> sum = longest, ratios;
  comm_.all_reduce(longest, {.op = ReduceOp::kMax, .name = "calibration"});
  comm_.all_reduce(sum, {.name = "calibration"});
  for (size_t i = 0; i < sum.size(); ++i) ratios.push_back(longest[i] * comm_.size() / sum[i]);
  return midmean(ratios);
}

}  // namespace herd::train
