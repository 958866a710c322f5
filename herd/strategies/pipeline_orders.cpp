#include "herd/strategies/pipeline_orders.h"

#include <algorithm>
#include <map>
#include <utility>

#include "herd/base/error.h"

namespace herd::strategies {
namespace {

using spec::Pass;
using spec::PipelineOrder;
using spec::Turn;
using Turns = std::vector<Turn>;

// Runs `ahead` forwards first, then a forward and a backward in turn.
Turns in_turn(const Turns& forwards, const Turns& backwards, int ahead) {
  const auto warm = static_cast<size_t>(std::min(ahead, static_cast<int>(forwards.size())));
  Turns turns(forwards.begin(), forwards.begin() + static_cast<long>(warm));
  for (size_t i = 0; i < backwards.size(); ++i) {
    if (warm + i < forwards.size()) turns.push_back(forwards[warm + i]);
    turns.push_back(backwards[i]);
  }
  return turns;
}

Turns passes(Pass pass, int micro_batches) {
  Turns turns;
  for (int m = 0; m < micro_batches; ++m) turns.push_back({pass, m});
  return turns;
}

Turns gpipe(const PipelineOrder& order, int) {
  const int m = order.micro_batches;
  return in_turn(passes(Pass::kForward, m), passes(Pass::kBackward, m), m);
}

Turns one_forward_one_backward(const PipelineOrder& order, int rank) {
  const int m = order.micro_batches;
  return in_turn(passes(Pass::kForward, m), passes(Pass::kBackward, m), order.ranks - 1 - rank);
}

// On each rank the gradients of weights follow those of inputs by as many micro-batches as ranks come before it.
Turns zero_bubble_h1(const PipelineOrder& order, int rank) {
  Turns turns;
  int weights = 0;
  for (const Turn& turn : one_forward_one_backward(order, rank)) {
    turns.push_back(turn);
    if (turn.pass == Pass::kBackward && turn.micro_batch >= rank) turns.push_back({Pass::kWeights, weights++});
  }
  while (weights < order.micro_batches) turns.push_back({Pass::kWeights, weights++});
  return turns;
}

// Cuts the micro-batches into as many groups of p or more as there can be, whose sizes differ by at most one. Groups of
// exactly p would leave fewer than p in the last one, and ranks would wait for each other in a circle.
Turns interleaved(const PipelineOrder& order, int rank) {
  const int p = order.ranks, v = order.stages_per_rank, m = order.micro_batches;
  const int groups = std::max(1, m / p), largest = (m + groups - 1) / groups;
  Turns forwards, backwards;
  for (int group = 0, first = 0; group < groups; ++group) {
    const int size = m / groups + (group < m % groups ? 1 : 0);
    for (int local_stage = 0; local_stage < v; ++local_stage) {
      for (int i = first; i < first + size; ++i) {
        forwards.push_back({Pass::kForward, i, local_stage});
        backwards.push_back({Pass::kBackward, i, v - 1 - local_stage});
      }
    }
    first += size;
  }
  return in_turn(forwards, backwards, 2 * (p - 1 - rank) + (v - 1) * largest);
}

// Lists the turns of one rank. Each turn takes the next micro-batch of its pass and stage, while there is one.
class TurnList {
 public:
  explicit TurnList(int micro_batches) : micro_batches_(micro_batches) {}
  void add(const std::vector<std::pair<Pass, int>>& round, int times = 1) {
    for (; times > 0; --times) {
      for (const auto& [pass, local_stage] : round) {
        if (is_left(pass, local_stage)) turns_.push_back({pass, next_[{pass, local_stage}]++, local_stage});
      }
    }
  }
  bool is_left(Pass pass, int local_stage) { return next_[{pass, local_stage}] < micro_batches_; }
  Turns turns() && { return std::move(turns_); }

 private:
  const int micro_batches_;
  std::map<std::pair<Pass, int>, int> next_;
  Turns turns_;
};

// The stages form a V: local stage 0 lies on the way down the ranks, local stage 1 on the way up. A rank runs forwards
// down until the first comes up again, then forwards of both ways in turn until the first backward. Next come, of each
// way in turn, a forward, a backward and its weights. At the end come the backwards that are left, and the weights that
// are left while other ranks wait for backwards.
Turns zero_bubble_v(const PipelineOrder& order, int rank) {
  const auto F = Pass::kForward, B = Pass::kBackward, W = Pass::kWeights;
  const int down = 0, up = 1, ranks_to_fold = order.ranks - rank;
  TurnList passes(order.micro_batches);
  passes.add({{F, down}}, 2 * ranks_to_fold - 1);
  passes.add({{F, up}, {F, down}}, rank);
  passes.add({{F, up}, {B, up}, {W, up}}, ranks_to_fold);
  while (passes.is_left(F, up)) passes.add({{F, down}, {B, down}, {W, down}, {F, up}, {B, up}, {W, up}});
  passes.add({{B, down}, {B, up}}, rank);
  passes.add({{B, down}, {W, down}}, ranks_to_fold);
  while (passes.is_left(B, down) || passes.is_left(B, up)) passes.add({{B, down}, {B, up}});
  while (passes.is_left(W, down) || passes.is_left(W, up)) passes.add({{W, up}, {W, down}});
  return std::move(passes).turns();
}

using TurnsOfRank = Turns (*)(const PipelineOrder& order, int rank);
constexpr std::pair<std::string_view, TurnsOfRank> kOrders[] = {{"gpipe", gpipe},
                                                                {"1f1b", one_forward_one_backward},
                                                                {"interleaved", interleaved},
                                                                {"zero_bubble_h1", zero_bubble_h1},
                                                                {"zero_bubble_v", zero_bubble_v}};

void require_same(const std::string& file, const char* what, int has, int needed, const std::string& fix) {
  if (has == needed) return;
  throw Error(Code::kBadConfig, file + ": an order of " + std::to_string(has) + " " + what + ", but the run has " +
                                    std::to_string(needed) + "\n  fix: " + fix);
}

}  // namespace

PipelineOrder pipeline_order(std::string_view name, const spec::PipelineForm& form, int ranks, int micro_batches) {
  for (const auto& [known_name, turns_of_rank] : kOrders) {
    if (known_name != name) continue;
    PipelineOrder order{ranks, form.stages_per_rank, micro_batches, form.folded, {}};
    order.check_sizes();
    for (int rank = 0; rank < ranks; ++rank) order.turns.push_back(turns_of_rank(order, rank));
    return order;
  }
  throw Error(Code::kBadConfig, "strategy.pipeline = \"" + std::string(name) +
                                    "\" has no order of micro-batches here\n  fix: strategy.pipeline = \"1f1b\"");
}

PipelineOrder pipeline_order(const spec::RunFile& run, const spec::Layout& layout) {
  const std::string file = spec::order_file_of(run);
  if (file.empty()) return pipeline_order(run.strategy.pipeline, layout.pipeline, layout.pp, layout.micro_batches);
  PipelineOrder order = spec::load_pipeline_order(file);
  require_same(file, "ranks", order.ranks, layout.pp, "mesh.pp = " + std::to_string(order.ranks));
  require_same(file, "micro-batches", order.micro_batches, layout.micro_batches,
               "train.batch and train.micro_batch that make " + std::to_string(order.micro_batches));
  return order;
}

}  // namespace herd::strategies
