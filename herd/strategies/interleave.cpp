#include "herd/strategies/interleave.h"

#include <algorithm>
#include <map>

#include "herd/program/passes.h"
#include "herd/strategies/first_contributions.h"

namespace herd::strategies {

using program::Lane;
using program::Op;

namespace {

constexpr int kSharedUnits = 2, kCollectiveUnits = 1;

// Ops of a micro-batch up to a collective of its activations, and with it.
struct Stretch {
  std::vector<Op> ops;
  int units = 0;
};

int micro_batch_of(const Op& op) {
  return op.lane == Lane::kActivations && !op.reads.empty() ? op.reads[0].micro_batch : op.micro_batch;
}

// Micro-batches that take turns, written one stretch after the other.
class Turns {
 public:
  void add(int micro_batch, Op op, int units) {
    auto& stretches = waiting_[micro_batch];
    if (stretches.empty() || is_collective(stretches.back().ops.back())) stretches.emplace_back();
    stretches.back().units += units;
    stretches.back().ops.push_back(std::move(op));
  }

  void write(std::vector<Op>& out) {
    int computed = 0, sent = 0;  // when the compute lane and that of collectives are free
    std::map<int, int> ready;    // when each micro-batch can go on
    std::map<int, size_t> next;
    while (true) {
      int chosen = -1, begin = 0;
      for (const auto& [m, stretches] : waiting_) {
        const int at = std::max(computed, ready[m]);
        if (next[m] < stretches.size() && (chosen < 0 || at < begin)) chosen = m, begin = at;
      }
      if (chosen < 0) break;
      Stretch& stretch = waiting_[chosen][next[chosen]++];
      ready[chosen] = computed = begin + stretch.units;
      if (is_collective(stretch.ops.back())) ready[chosen] = sent = std::max(sent, computed) + kCollectiveUnits;
      for (Op& op : stretch.ops) out.push_back(std::move(op));
    }
    waiting_.clear();
  }

 private:
  static bool is_collective(const Op& op) { return op.lane == Lane::kActivations; }
  std::map<int, std::vector<Stretch>> waiting_;
};

}  // namespace

Interleave::Interleave(int count, const spec::ModelTable& model) : count_(count) {
  for (const spec::BlockShape& block : model.blocks) shared_.push_back(block.split == spec::Split::kCut);
}

program::Program Interleave::rewrite(program::Program step) const {
  std::vector<Op> ops, rest;
  Turns turns;
  int first = 0;  // of those that take turns
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
            if (!step.split || count == 1) return nullptr;
            return std::make_unique<Interleave>(static_cast<int>(count), step.model);
          },
          .supports = {{"strategy.interleave_micro_batches", {}}},
          .adapt =
              [](spec::RunFile& run) {
                if (run.mesh.pp > 1 || run.mesh.tp == 1) run.strategy.interleave_micro_batches = 1;
              }};
}

}  // namespace herd::strategies
