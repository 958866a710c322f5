#include "herd/spec/pipeline_form.h"

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/spec/pipeline_order.h"
#include "herd/spec/stage_cut.h"

namespace herd::spec {
namespace {

void require_stages(const RunFile& run, int64_t min_stages, int64_t max_stages, const std::string& rule) {
  const int64_t stages = run.strategy.stages_per_rank;
  if (stages == kAuto || (stages >= min_stages && stages <= max_stages)) return;
  throw Error(Code::kBadConfig, "strategy.stages_per_rank must be " + rule + " with strategy.pipeline = \"" +
                                    run.strategy.pipeline + "\", got " + std::to_string(stages) +
                                    "\n  fix: strategy.stages_per_rank = " + std::to_string(min_stages) +
                                    (max_stages == 1 ? ", or strategy.pipeline = \"interleaved\"" : ""));
}

}  // namespace

std::string order_file_of(const RunFile& run) {
  const std::string prefix = "file:";
  return run.strategy.pipeline.starts_with(prefix) ? run.strategy.pipeline.substr(prefix.size()) : "";
}

PipelineForm pipeline_form(const RunFile& run) {
  if (const std::string file = order_file_of(run); !file.empty()) {
    const PipelineOrder order = load_pipeline_order(file);
    require_stages(run, order.stages_per_rank, order.stages_per_rank, "auto, or what the file says");
    return {order.stages_per_rank, order.folded};
  }
  if (run.strategy.pipeline == "zero_bubble_v") {
    require_stages(run, 2, 2, "auto or 2, the way there and back,");
    return {2, true};
  }
  if (run.strategy.pipeline == "interleaved") {
    require_stages(run, 2, 1'000'000, "auto (= 2), 2 or more");
    return {run.strategy.stages_per_rank == kAuto ? 2 : static_cast<int>(run.strategy.stages_per_rank), false};
  }
  require_stages(run, 1, 1, "auto or 1");
  return {};
}

std::vector<int> rank_of_stages(int ranks, const PipelineForm& form) {
  PipelineOrder order;
  order.ranks = ranks, order.stages_per_rank = form.stages_per_rank, order.folded = form.folded;
  std::vector<int> out;
  for (int stage = 0; stage < order.stages(); ++stage) out.push_back(order.rank_of(stage));
  return out;
}

std::vector<int> stage_of_blocks(const ModelTable& model, int ranks, const PipelineForm& form) {
  if (form.stage_of_layers.empty()) return stage_of_blocks(model, rank_of_stages(ranks, form));
  std::vector<int> out = layer_of_blocks(model);
  HERD_CHECK_EQ(static_cast<size_t>(out.back()) + 1, form.stage_of_layers.size());
  for (int& at : out) at = form.stage_of_layers[static_cast<size_t>(at)];
  return out;
}

std::vector<int> rank_of_blocks(const ModelTable& model, int ranks, const PipelineForm& form) {
  const std::vector<int> rank_of_stage = rank_of_stages(ranks, form);
  std::vector<int> out = stage_of_blocks(model, ranks, form);
  for (int& stage : out) stage = rank_of_stage[static_cast<size_t>(stage)];
  return out;
}

}  // namespace herd::spec
