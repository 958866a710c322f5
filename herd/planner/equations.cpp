// Computes memory, time and traffic of a step in closed form, from the same model table that programs are built from.
// Memory is that of the pipeline stage that holds most, and time that of the stage that takes longest.
#include <utility>

#include "herd/base/error.h"
#include "herd/planner/equations_internal.h"
#include "herd/planner/prediction.h"
#include "herd/planner/stage_search.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/compute.h"
#include "herd/spec/pipeline.h"

namespace herd::planner {

double idle_share(const PartitionedModel& cut) {
  const auto pipeline = spec::parse_pipeline(cut.run.strategy.pipeline);
  return spec::bubble_fraction(pipeline, cut.layout.pp, cut.layout.micro_batches);
}

namespace {

// Predicts a step by equations; without `line_cache` only its memory.
Prediction by_equations(const spec::RunFile& run, int ranks, const Cluster& cluster,
                        CollectiveCostModel::LineCache* line_cache) {
  spec::Layout layout = spec::resolve_mesh(run, ranks);
  if (const auto beyond = beyond_equations(run, layout))
    throw Error(Code::kBadConfig, "no equation covers " + beyond->setting + "\n  fix: " + beyond->fix);
  const Cluster sized_cluster = with_ranks(cluster, layout.world_size);
  spec::ModelTable model = spec::model_table(run, layout.micro_batch, sized_cluster.device.kernels());
  layout = with_estimated_stage_cut(run, model, std::move(layout));
  const PartitionedModel cut(run, layout, std::move(model));
  CollectiveCostModel cost(sized_cluster.topology, cut.model.compute_dtype, CollectiveCostModel::Timing::kFitLine);
  if (line_cache != nullptr) cost.share_lines_in(*line_cache);
  Prediction out;
  out.layout = layout;
  out.parameters = cut.model.parameters();
  out.frozen = cut.model.frozen_parameters();
  out.active = spec::active_parameters(cut.model);
  for (int stage = 0; stage < layout.pp; ++stage) {
    Prediction of_stage;
    add_memory(cut, stage, of_stage);
    if (line_cache != nullptr) add_time(cut, stage, sized_cluster, cost, of_stage);
    if (of_stage.device.total() > out.device.total()) {
      out.device = of_stage.device;
      out.host = of_stage.host;
      out.nvme = of_stage.nvme;
    }
    if (of_stage.step_us > out.step_us) {
      out.step_us = of_stage.step_us;
      out.flops = of_stage.flops;
      out.compute_us = of_stage.compute_us;
      out.sent = of_stage.sent;
      out.host_link_out = of_stage.host_link_out;
      out.host_link_in = of_stage.host_link_in;
    }
  }
  out.device_bound = out.device.total();
  out.idle_share = idle_share(cut);
  return out;
}

}  // namespace

Prediction predict_by_equations(const spec::RunFile& run, int ranks, const Cluster& cluster,
                                CollectiveCostModel::LineCache& line_cache) {
  return by_equations(run, ranks, cluster, &line_cache);
}

Prediction memory_by_equations(const spec::RunFile& run, int ranks, const Cluster& cluster) {
  return by_equations(run, ranks, cluster, nullptr);
}

}  // namespace herd::planner
