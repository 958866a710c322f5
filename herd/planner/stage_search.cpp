#include "herd/planner/stage_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "herd/planner/equations_internal.h"
#include "herd/program/memory_bound.h"
#include "herd/spec/stage_cut.h"
#include "herd/strategies/pipeline_orders.h"
#include "herd/strategies/strategy_table.h"

namespace herd::planner {
namespace {

using spec::BlockInterval;

// Ops of the programs that a search builds before it takes the best so far: as long as some cut may fit, and for the
// smallest where none does.
constexpr size_t kMaxBuiltOps = 50000, kMaxOpsOfSmallest = 5000;
// Stages whose programs were not built count as this share of what equations, or programs of parts of them, say that
// they hold at least. Equations of herd's models are held to their programs; blocks of a chain may read the same
// tensors.
constexpr double kShareOfModels = 0.95, kShareOfChains = 0.5;

// Returns what each stage has in flight when its rank holds most.
std::vector<InFlight> in_flight_of_stages(const spec::RunFile& run, const spec::Layout& layout) {
  std::vector<InFlight> out;
  if (layout.pipeline.stages_per_rank == 1 && spec::order_file_of(run).empty()) {
    for (int stage = 0; stage < layout.pp; ++stage) out.push_back(in_flight_of(run, layout, stage));
    return out;
  }
  const spec::PipelineOrder order = strategies::pipeline_order(run, layout);
  out.resize(static_cast<size_t>(order.stages()));
  for (int rank = 0; rank < order.ranks; ++rank) {
    std::vector<InFlight> held(static_cast<size_t>(order.stages_per_rank), InFlight{0, 0}), most;
    double sum = 0, most_sum = -1;
    for (const spec::Turn& turn : order.turns[static_cast<size_t>(rank)]) {
      InFlight& of_stage = held[static_cast<size_t>(turn.local_stage)];
      if (turn.pass == spec::Pass::kForward) ++of_stage.graphs, ++sum;
      if (sum > most_sum) most_sum = sum, most = held;
      if (turn.pass == spec::Pass::kBackward) --of_stage.graphs, --sum, ++of_stage.pending;
      if (turn.pass == spec::Pass::kWeights) --of_stage.pending;
    }
    for (int local_stage = 0; local_stage < order.stages_per_rank; ++local_stage) {
      InFlight& of_stage = out[static_cast<size_t>(order.stage_of(rank, local_stage))];
      of_stage = most[static_cast<size_t>(local_stage)];
      if (!order.splits_backward()) of_stage.pending = 0;
    }
  }
  return out;
}

// Builds the programs of the ranks of a pipeline.
class BuiltCut {
 public:
  BuiltCut(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout) {
    for (const int rank : strategies::ranks_of_stages(layout))
      steps_.push_back(strategies::compile_step(run, model, layout, rank));
  }
  // Returns the bytes of the fullest moment of each rank.
  std::vector<double> bytes() const {
    std::vector<double> out;
    for (const program::Program& step : steps_)
      out.push_back(static_cast<double>(peak_bound(step, program::Tier::kDevice, steps_).bytes +
                                        strategies::uncounted_bytes(step)));
    return out;
  }
  size_t ops() const {
    size_t sum = 0;
    for (const program::Program& step : steps_) sum += step.ops.size();
    return sum;
  }

 private:
  std::vector<program::Program> steps_;
};

// Searches the cuts of one run.
class StageSearch {
 public:
  // `model` is of whole layers. Borrows all of them.
  StageSearch(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout)
      : model_(model),
        partitioned_(run, layout, model),
        in_flight_(in_flight_of_stages(run, layout)),
        rank_of_stage_(spec::rank_of_stages(layout.pp, layout.pipeline)),
        has_stages_that_share_(layout.pipeline.stages_per_rank > 1),
        have_backward_(model.have_backward()),
        share_(static_cast<size_t>(layout.pp), 1.0),
        known_(rank_of_stage_.size()) {
    for (size_t b = 0; b < model.blocks.size(); ++b) {
      for (const int group : model.blocks[b].groups) {
        const auto [readers, inserted] = readers_.try_emplace(group, BlockInterval{b, b + 1});
        readers->second.end = b + 1;
      }
    }
  }

  // Returns the stage of each layer in the best cut for a budget.
  std::vector<int> best(double budget) const {
    const std::vector<int> layers = spec::layer_of_blocks(model_);
    const std::vector<int> stages = spec::stage_of_blocks(
        model_, rank_of_stage_, {[&](int stage, BlockInterval blocks) { return bytes(stage, blocks); }, budget});
    std::vector<int> out(static_cast<size_t>(layers.back()) + 1);
    for (size_t b = 0; b < layers.size(); ++b) out[static_cast<size_t>(layers[b])] = stages[b];
    return out;
  }

  // Returns the bytes of the fullest rank of a cut, as far as they are known.
  double most_bytes(const std::vector<int>& stage_of_layers) const {
    std::vector<double> ranks(share_.size(), 0);
    for (size_t stage = 0; stage < rank_of_stage_.size(); ++stage)
      ranks[static_cast<size_t>(rank_of_stage_[stage])] +=
          bytes(static_cast<int>(stage), blocks_of(stage_of_layers, static_cast<int>(stage)));
    return std::ranges::max(ranks);
  }

  // Notes what the ranks of a cut hold. From then on what is known of stages counts in place of estimates.
  void learn(const std::vector<int>& stage_of_layers, const std::vector<double>& held) {
    std::vector<double> estimates(held.size(), 0);
    for (size_t stage = 0; stage < rank_of_stage_.size(); ++stage) {
      const auto rank = static_cast<size_t>(rank_of_stage_[stage]);
      const BlockInterval blocks = blocks_of(stage_of_layers, static_cast<int>(stage));
      estimates[rank] += estimate(static_cast<int>(stage), blocks);
      double& known = known_[stage].try_emplace(blocks, 0).first->second;
      known = std::max(known, held[rank]);
    }
    for (size_t rank = 0; rank < held.size(); ++rank) share_[rank] = held[rank] / estimates[rank];
    has_learned_ = true;
  }

 private:
  BlockInterval blocks_of(const std::vector<int>& stage_of_layers, int stage) const {
    std::vector<int> stages = spec::layer_of_blocks(model_);
    for (int& at : stages) at = stage_of_layers[static_cast<size_t>(at)];
    return spec::blocks_of_stage(stages, stage);
  }

  double bytes(int stage, BlockInterval blocks) const {
    if (!has_learned_) return estimate(stage, blocks);
    const auto at = static_cast<size_t>(stage);
    if (has_stages_that_share_) return share_[static_cast<size_t>(rank_of_stage_[at])] * estimate(stage, blocks);
    double least = least_bytes(stage, blocks);
    for (const auto& [part, held] : known_[at]) {
      if (part == blocks) return held;
      if (part.begin >= blocks.begin && part.end <= blocks.end) least = std::max(least, held);
    }
    return (model_.is_chain() ? kShareOfChains : kShareOfModels) * least;
  }

  double estimate(int stage, BlockInterval blocks) const {
    if (parts_a_group(stage, blocks)) return std::numeric_limits<double>::infinity();
    Prediction out;
    add_standing(partitioned_, blocks, {}, out);
    const double scratch = add_activations(partitioned_, blocks, in_flight_[static_cast<size_t>(stage)], out);
    return out.device.total() + scratch;
  }

  // Returns what always waits in memory: states, and what blocks keep of the micro-batches in flight.
  double least_bytes(int stage, BlockInterval blocks) const {
    if (parts_a_group(stage, blocks)) return std::numeric_limits<double>::infinity();
    Prediction out;
    add_standing(partitioned_, blocks, {}, out);
    double kept = 0;
    for (size_t b = blocks.begin; b < blocks.end; ++b)
      kept += have_backward_[b] && !partitioned_.is_head(b) ? kept_bytes(partitioned_, b) : 0;
    return out.device.total() + in_flight_[static_cast<size_t>(stage)].graphs * kept;
  }

  // Tells whether blocks of other stages read a group of these, and no axis joins them. Stages of one rank may share.
  bool parts_a_group(int stage, BlockInterval blocks) const {
    const bool is_end = stage == 0 || stage + 1 == static_cast<int>(rank_of_stage_.size());
    if (has_stages_that_share_ || (is_end && partitioned_.ends_share_groups())) return false;
    for (size_t b = blocks.begin; b < blocks.end; ++b) {
      for (const int group : model_.blocks[b].groups) {
        const BlockInterval& readers = readers_.at(group);
        if (readers.begin < blocks.begin || readers.end > blocks.end) return true;
      }
    }
    return false;
  }

  const spec::ModelTable& model_;
  const PartitionedModel partitioned_;
  const std::vector<InFlight> in_flight_;  // of each stage
  const std::vector<int> rank_of_stage_;
  const bool has_stages_that_share_;                    // true: ranks have several stages
  const std::vector<bool> have_backward_;               // by block
  std::map<int, BlockInterval> readers_;                // by group: from its first reader to its last
  std::vector<double> share_;                           // by rank: what it holds of its estimate
  std::vector<std::map<BlockInterval, double>> known_;  // by stage: bytes of its rank in cuts whose programs were built
  bool has_learned_ = false;
};

double budget_of(const spec::RunFile& run) {
  return run.memory.device_budget > 0 ? static_cast<double>(run.memory.device_budget)
                                      : std::numeric_limits<double>::infinity();
}

}  // namespace

spec::Layout with_estimated_stage_cut(const spec::RunFile& run, const spec::ModelTable& model, spec::Layout layout) {
  layout.pipeline.stage_of_layers.clear();
  if (layout.pp == 1) return layout;
  std::vector<int> stages = StageSearch(run, model, layout).best(budget_of(run));
  layout.pipeline.stage_of_layers = std::move(stages);
  return layout;
}

spec::Layout with_stage_cut(const spec::RunFile& run, const spec::ModelTable& model, spec::Layout layout,
                            spec::Kernels kernels) {
  layout.pipeline.stage_of_layers.clear();
  if (layout.pp == 1) return layout;
  const spec::ModelTable layers = model.is_chain() ? model : spec::model_table(run, layout.micro_batch, kernels);
  if (run.memory.device_budget == 0 || !why_no_program(run, layout).empty())
    return with_estimated_stage_cut(run, layers, std::move(layout));
  const spec::Layout uncut = layout;
  StageSearch search(run, layers, uncut);
  std::vector<int> smallest = search.best(std::numeric_limits<double>::infinity());  // the fastest
  double least = std::numeric_limits<double>::infinity();
  std::set<std::vector<int>> tried;
  size_t built_ops = 0, max_ops = kMaxBuiltOps;
  std::vector<int> cut = smallest;
  while (built_ops < max_ops && tried.insert(cut).second) {
    layout.pipeline.stage_of_layers = cut;
    const BuiltCut built(run, model, layout);
    built_ops += built.ops();
    const std::vector<double> held = built.bytes();
    const double most = std::ranges::max(held);
    if (most < least) least = most, smallest = cut;
    if (most <= budget_of(run)) break;
    search.learn(cut, held);
    cut = search.best(budget_of(run));
    if (search.most_bytes(cut) > budget_of(run)) max_ops = kMaxOpsOfSmallest;
  }
  layout.pipeline.stage_of_layers = std::move(smallest);
  return layout;
}

}  // namespace herd::planner
