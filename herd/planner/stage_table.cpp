#include "herd/planner/stage_table.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "herd/base/units.h"
#include "herd/draw/table.h"
#include "herd/planner/extrapolated_internal.h"
#include "herd/planner/prediction.h"
#include "herd/program/memory_bound.h"
#include "herd/program/memory_use.h"
#include "herd/program/passes.h"
#include "herd/program/simulate.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/stage_cut.h"
#include "herd/strategies/order_picture.h"
#include "herd/strategies/pipeline_orders.h"
#include "herd/strategies/strategy_table.h"

namespace herd::planner {
namespace {

constexpr char kWholeBackward[] =
    "blocks of a program of one's own run backward whole: where the order makes gradients of weights later, "
    "backward-weight is merged into backward\n";
constexpr int kMaxTurns = 400;  // turns of a rank that a picture shows; each takes a column or two

// Holds the blocks of a pipeline stage, with their parameters and what they cost for each micro-batch.
struct StageCost {
  std::string blocks;  // "h.3 to h.5"
  double parameters = 0, flops = 0, us = 0;
  double sent_bytes = 0;  // to the next stage
};

// Holds what a rank holds at its fullest moment.
struct RankBytes {
  double states = 0, activations = 0;  // weights, gradients and states; the rest
  double total() const { return states + activations; }
};

StageCost cost_of(const spec::ModelTable& model, const spec::BlockInterval& blocks) {
  StageCost out;
  std::set<int> groups;
  for (size_t b = blocks.begin; b < blocks.end; ++b) {
    const spec::BlockShape& block = model.blocks[b];
    groups.insert(block.groups.begin(), block.groups.end());
    out.flops += flops_of(block);
  }
  for (const int group : groups) out.parameters += static_cast<double>(model.group_elements(group));
  const std::string &first = model.blocks[blocks.begin].name, &last = model.blocks[blocks.end - 1].name;
  out.blocks = first == last ? first : first + " to " + last;
  return out;
}

// Returns the time of a pass where nothing else uses the machine.
double pass_us(const program::Op& op, const spec::BlockShape& block, const program::Calibration& machine) {
  const bool again = op.kind == program::OpKind::kRecompute, half = op.kind == program::OpKind::kBackwardWeight;
  const program::OpKind kind = again                     ? program::OpKind::kForward
                               : half && block.is_loss() ? program::OpKind::kLoss
                               : half                    ? program::OpKind::kBackward
                                                         : op.kind;
  const auto measured = machine.measured_us.find({kind, op.block});
  if (measured == machine.measured_us.end()) return program::pass_work(cost_of(op, block), 0, machine).work_us;
  return measured->second * (kind == program::OpKind::kForward ? 1 : share_of_backward(op, block));
}

RankBytes bytes_of(const program::Peak& peak) {
  const program::BytesByUse bytes = program::by_use(peak.by_kind, peak.bytes);
  RankBytes out;
  for (const auto use : {program::MemoryUse::kWeights, program::MemoryUse::kGradients, program::MemoryUse::kStates})
    out.states += static_cast<double>(bytes[static_cast<size_t>(use)]);
  out.activations = static_cast<double>(peak.bytes) - out.states;
  return out;
}

std::string percent_of(double part, double whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f %%", whole > 0 ? 100 * part / whole : 0);
  return text;
}

// Describes the stages of one run.
class StageTable {
 public:
  StageTable(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout,
             const Cluster& cluster, const spec::PipelineOrder& order)
      : run_(run), order_(order) {
    const std::vector<int> stage_of_block = spec::stage_of_blocks(model, layout.pp, layout.pipeline);
    const auto borders =
        border_tensors(model.readers(), stage_of_block, spec::rank_of_stages(layout.pp, layout.pipeline));
    for (int stage = 0; stage < order.stages(); ++stage) {
      stages_.push_back(cost_of(model, spec::blocks_of_stage(stage_of_block, stage)));
      for (const spec::TensorId tensor : borders[static_cast<size_t>(stage)])
        stages_.back().sent_bytes += static_cast<double>(model.tensor_bytes(tensor));
    }
    const program::Calibration machine = calibration_of(with_ranks(cluster, layout.world_size), run, layout);
    if (why_no_program(run, layout).empty()) {
      ranks_ = bytes_of_ranks(run, model, layout);
      add_times(compile(run, model, layout), model, stage_of_block, machine);
      return;
    }
    const std::optional<ShorterRuns> runs = shorter_runs(run, layout);
    has_programs_ = runs.has_value();
    if (!runs) return;
    const auto shorter = [&](const spec::RunFile& other) {
      spec::Layout out = spec::resolve_mesh(other, layout.world_size);
      out.pipeline = layout.pipeline;
      return out;
    };
    const std::vector<RankBytes> first = bytes_of_ranks(runs->first, model, shorter(runs->first));
    ranks_ = bytes_of_ranks(runs->second, model, shorter(runs->second));
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].states = runs->bytes_at(first[rank].states, ranks_[rank].states);
      ranks_[rank].activations = runs->bytes_at(first[rank].activations, ranks_[rank].activations);
    }
    add_times(compile(runs->first, model, shorter(runs->first)), model, stage_of_block, machine);
  }

  std::string text() const {
    double max_flops = 0;
    for (const StageCost& cost : stages_) max_flops = std::max(max_flops, cost.flops);
    draw::Table table{{{"rank"}, {.name = "stage", .right = true}, {"blocks"}}, {}};
    for (const char* name : {"parameters", "arithmetic", "time", "states", "activations", "sends on"}) {
      if (has_programs_ || !is_of_programs(name)) table.columns.push_back({.name = name, .right = true});
    }
    for (int rank = 0; rank < order_.ranks; ++rank) {
      for (int local_stage = 0; local_stage < order_.stages_per_rank; ++local_stage) {
        const int stage = order_.stage_of(rank, local_stage);
        const StageCost& cost = stages_[static_cast<size_t>(stage)];
        std::vector<std::string> row = {std::to_string(rank), std::to_string(stage), cost.blocks,
                                        format_count(cost.parameters), percent_of(cost.flops, max_flops)};
        if (has_programs_) {
          const RankBytes& bytes = ranks_[static_cast<size_t>(rank)];
          row.push_back(format_us(cost.us));
          row.push_back(local_stage == 0 ? format_bytes(bytes.states) : "");
          row.push_back(local_stage == 0 ? format_bytes(bytes.activations) : "");
        }
        row.push_back(cost.sent_bytes > 0 ? format_bytes(cost.sent_bytes) : "-");
        table.rows.push_back(std::move(row));
      }
    }
    return draw::text_table(table) + remarks();
  }

 private:
  static std::vector<program::Program> compile(const spec::RunFile& run, const spec::ModelTable& model,
                                               const spec::Layout& layout) {
    std::vector<program::Program> steps;
    for (const int rank : strategies::ranks_of_stages(layout))
      steps.push_back(strategies::compile_step(run, model, layout, rank));
    return steps;
  }

  static std::vector<RankBytes> bytes_of_ranks(const spec::RunFile& run, const spec::ModelTable& model,
                                               const spec::Layout& layout) {
    const std::vector<program::Program> steps = compile(run, model, layout);
    std::vector<RankBytes> out;
    for (const program::Program& step : steps) out.push_back(bytes_of(peak_bound(step, program::Tier::kDevice, steps)));
    return out;
  }

  void add_times(const std::vector<program::Program>& steps, const spec::ModelTable& model,
                 const std::vector<int>& stage_of_block, const program::Calibration& machine) {
    for (const program::Program& step : steps) {
      for (const program::Op& op : step.ops) {
        if (!is_pass(op) || program::micro_batch_of(op) != 0) continue;
        const auto stage = static_cast<size_t>(stage_of_block[static_cast<size_t>(op.block)]);
        stages_[stage].us += pass_us(op, model.blocks[static_cast<size_t>(op.block)], machine);
      }
    }
  }

  static bool is_of_programs(const std::string& column) {
    return column == "time" || column == "states" || column == "activations";
  }

  std::string remarks() const {
    const std::string sends = "sends on: to the next stage, for each micro-batch\n";
    if (!has_programs_) return "arithmetic: relative to the stage that has most, which sets the pace; " + sends;
    std::vector<double> us(ranks_.size(), 0);  // of each rank
    for (int stage = 0; stage < order_.stages(); ++stage)
      us[static_cast<size_t>(order_.rank_of(stage))] += stages_[static_cast<size_t>(stage)].us;
    const auto slowest = std::ranges::max_element(us);
    const auto fullest = std::ranges::max_element(ranks_, {}, &RankBytes::total);
    const double budget = static_cast<double>(run_.memory.device_budget);
    return "arithmetic: relative to the stage that has most; time: of the passes of a micro-batch; " + sends +
           "states: weights, gradients and the optimizer's; activations: with buffers, when the rank holds most\n"
           "rank " +
           std::to_string(slowest - us.begin()) + " sets the pace: " + format_us(*slowest) + " a micro-batch; rank " +
           std::to_string(fullest - ranks_.begin()) + " holds most: " + format_bytes(fullest->total()) +
           (budget > 0 ? " of memory.device_budget = " + format_bytes(budget) : "") + "\n";
  }

  const spec::RunFile& run_;
  const spec::PipelineOrder& order_;
  std::vector<StageCost> stages_;
  std::vector<RankBytes> ranks_;  // where the run has programs
  bool has_programs_ = true;
};

}  // namespace

std::string stages_text(const spec::RunFile& run, const spec::Layout& layout, const Cluster& cluster) {
  return stages_text(run, spec::program_table(run, layout.micro_batch, cluster.device.kernels()), layout, cluster);
}

std::string stages_text(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout,
                        const Cluster& cluster) {
  if (layout.pp == 1) return "no pipeline: mesh.pp = 1\n";
  const spec::PipelineOrder order = strategies::pipeline_order(run, layout);
  const std::string out = StageTable(run, model, layout, cluster, order).text() +
                          (model.is_chain() && order.splits_backward() ? kWholeBackward : "") + "\n" +
                          run.strategy.pipeline + " with stages that take equally long, " +
                          std::to_string(order.micro_batches) + " micro-batches:\n";
  if (static_cast<int>(order.turns[0].size()) > kMaxTurns)
    return out + "too long to draw; herd show order draws it with fewer micro-batches\n";
  return out + strategies::order_picture(order);
}

std::string whole_backward_remark(const spec::RunFile& run, const spec::Layout& layout) {
  const bool is_piped = run.model.kind == "chain" && layout.pp > 1;
  return is_piped && strategies::pipeline_order(run, layout).splits_backward() ? kWholeBackward : "";
}

}  // namespace herd::planner
