#include "herd/planner/stage_table.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "herd/base/units.h"
#include "herd/draw/table.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/stage_cut.h"
#include "herd/strategies/order_picture.h"
#include "herd/strategies/pipeline_orders.h"

namespace herd::planner {
namespace {

constexpr char kWholeBackward[] =
    "blocks of a program of one's own run backward whole: where the order makes gradients of weights later, "
    "backward-weight is merged into backward\n";
constexpr int kMaxTurns = 400;  // turns of a rank that a picture shows; each takes a column or two

// Holds the blocks of a pipeline stage, with their parameters and their FLOPs per micro-batch.
struct StageCost {
  std::string blocks;  // "h.3 to h.5"
  double parameters = 0, flops = 0;
  double sent_bytes = 0;  // of a micro-batch, to the next stage
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

}  // namespace

std::string stages_text(const spec::RunFile& run, const spec::Layout& layout) {
  return stages_text(run, spec::program_table(run, layout.micro_batch), layout);
}

std::string stages_text(const spec::RunFile& run, const spec::ModelTable& model, const spec::Layout& layout) {
  if (layout.pp == 1) return "no pipeline: mesh.pp = 1\n";
  const spec::PipelineOrder order = strategies::pipeline_order(run, layout);
  const std::vector<int> stage_of_block =
      spec::stage_of_blocks(model, order.ranks, {order.stages_per_rank, order.folded});
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < order.stages(); ++stage) rank_of_stage.push_back(order.rank_of(stage));
  const auto borders = border_tensors(model.readers(), stage_of_block, rank_of_stage);
  std::vector<StageCost> stages;
  double max_flops = 0;
  for (int stage = 0; stage < order.stages(); ++stage) {
    stages.push_back(cost_of(model, spec::blocks_of_stage(stage_of_block, stage)));
    max_flops = std::max(max_flops, stages.back().flops);
    for (const spec::TensorId tensor : borders[static_cast<size_t>(stage)])
      stages.back().sent_bytes += static_cast<double>(model.tensor_bytes(tensor));
  }
  draw::Table table{{{"rank"},
                     {.name = "stage", .right = true},
                     {"blocks"},
                     {.name = "parameters", .right = true},
                     {.name = "arithmetic", .right = true},
                     {.name = "sends on", .right = true}},
                    {}};
  for (int rank = 0; rank < order.ranks; ++rank) {
    for (int local_stage = 0; local_stage < order.stages_per_rank; ++local_stage) {
      const int stage = order.stage_of(rank, local_stage);
      const StageCost& cost = stages[static_cast<size_t>(stage)];
      char share[32];
      std::snprintf(share, sizeof share, "%.0f %%", max_flops > 0 ? 100 * cost.flops / max_flops : 0);
      table.rows.push_back({std::to_string(rank), std::to_string(stage), cost.blocks, format_count(cost.parameters),
                            share, cost.sent_bytes > 0 ? format_bytes(cost.sent_bytes) : "-"});
    }
  }
  std::string out = draw::text_table(table) +
                    "arithmetic: relative to the stage that has most, which sets the pace; sends on: to the next "
                    "stage, for each micro-batch\n" +
                    (model.is_chain() && order.splits_backward() ? kWholeBackward : "") + "\n" + run.strategy.pipeline +
                    " with stages that take equally long, " + std::to_string(order.micro_batches) + " micro-batches:\n";
  if (static_cast<int>(order.turns[0].size()) > kMaxTurns)
    return out + "too long to draw; herd show order draws it with fewer micro-batches\n";
  return out + strategies::order_picture(order);
}

std::string whole_backward_remark(const spec::RunFile& run, const spec::Layout& layout) {
  const bool is_piped = run.model.kind == "chain" && layout.pp > 1;
  return is_piped && strategies::pipeline_order(run, layout).splits_backward() ? kWholeBackward : "";
}

}  // namespace herd::planner
