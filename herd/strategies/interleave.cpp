#include "herd/strategies/interleave.h"

#include <algorithm>
#include <map>

#include "herd/program/passes.h"
#include "herd/strategies/first_contributions.h"

namespace herd::strategies {

using program::Lane;
using program::Op;

namespace {

// A pass of attention, of a block that ranks share or of experts, and a collective of activations, are assumed to take
// so many units of time.
constexpr int kSharedUnits = 2, kCollectiveUnits = 1;

// Holds ops of a micro-batch up to and including a collective of its activations.
struct Stretch {
  std::vector<Op> ops;
  int units = 0;
};

// Writes the ops of micro-batches that take turns, a stretch at a time: next comes the one that can start first.
class MicroBatchTurns {
 public:
  void add(int micro_batch, Op op, int units) {
    auto& stretches = stretches_[micro_batch];
    if (stretches.empty() || is_collective(stretches.back().ops.back())) stretches.emplace_back();
    stretches.back().units += units;
    stretches.back().ops.push_back(std::move(op));
  }

  void write(std::vector<Op>& out) {
    int compute_free = 0, collectives_free = 0;  // when the lanes are free, in units
    std::map<int, int> ready;                    // when each micro-batch can go on
    std::map<int, size_t> next;
    while (true) {
      int chosen = -1, begin = 0;
      for (const auto& [m, stretches] : stretches_) {
        const int start = std::max(compute_free, ready[m]);
        if (next[m] < stretches.size() && (chosen < 0 || start < begin)) chosen = m, begin = start;
      }
      if (chosen < 0) break;
      Stretch& stretch = stretches_[chosen][next[chosen]++];
      ready[chosen] = compute_free = begin + stretch.units;
      if (is_collective(stretch.ops.back())) {
        collectives_free = std::max(collectives_free, compute_free) + kCollectiveUnits;
        ready[chosen] = collectives_free;
      }
      for (Op& op : stretch.ops) out.push_back(std::move(op));
    }
    stretches_.clear();
  }

 private:
  static bool is_collective(const Op& op) { return op.lane == Lane::kActivations; }
  std::map<int, std::vector<Stretch>> stretches_;
};

}  // namespace

Interleave::Interleave(int count, const spec::ModelTable& model) : count_(count) {
  for (const spec::BlockShape& block : model.blocks)
    shared_.push_back(block.split == spec::Split::kCut || block.by_experts || block.forward.attention_flops > 0);
}

program::Program Interleave::rewrite(program::Program step) const {
  std::vector<Op> ops, rest;
  MicroBatchTurns turns;
  int first = 0;  // the first micro-batch of those that take turns
  for (Op& op : step.ops) {
    const int m = micro_batch_of(op);
    if (m < 0) {
      rest.push_back(std::move(op));
      continue;
    }
    if (m >= first + count_) {
      turns.write(ops);
      first = m;
    }
    const bool shared = is_pass(op) && shared_[static_cast<size_t>(op.block)];
    turns.add(m, std::move(op), shared ? kSharedUnits : 0);
  }
  turns.write(ops);
  let_first_contributions_write(ops);
  ops.insert(ops.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  step.ops = std::move(ops);
  return step;
}

Technique interleave_row() {
  return {.name = "interleave",
          .rewrite_for = [](const StepContext& step) -> std::unique_ptr<Strategy> {
            const int64_t count = step.run.strategy.interleave_micro_batches;
            const bool exchanges = step.split || step.layout.expert_axis != kNoAxis;
            if (!exchanges || count == 1) return nullptr;
            return std::make_unique<Interleave>(static_cast<int>(count), step.model);
          },
          .supports = {{"strategy.interleave_micro_batches", {}}},
          .adapt =
              [](spec::RunFile& run) {
                const bool exchanges = run.mesh.tp > 1 || run.mesh.ep > 1;
                if (run.mesh.pp > 1 || !exchanges) run.strategy.interleave_micro_batches = 1;
              }};
}

}  // namespace herd::strategies
