// Memory, time and traffic of a step in closed form, over the same layer table that Programs are built from: of the
// pipeline's stages, the one that holds most and the one that takes longest.
#include "herd/planner/equations_internal.h"
#include "herd/planner/prediction.h"
#include "herd/spec/pipeline.h"

namespace herd::planner {

double idle_share(const PartitionedModel& cut) {
  const auto pipeline = spec::parse_pipeline(cut.run.strategy.pipeline);
  return spec::bubble_fraction(pipeline, cut.layout.pp, cut.layout.micro_batches);
}

namespace {

// Without `line_cache` it predicts memory alone.
Prediction by_equations(const spec::RunFile& run, int ranks, const Cluster& cluster,
                        CollectiveCostModel::LineCache* line_cache) {
  const spec::Layout layout = spec::resolve_mesh(run, ranks);
  const Cluster used = with_ranks(cluster, ranks);
  const PartitionedModel cut(run, layout, used);
  CollectiveCostModel cost(used.topology, cut.model.compute_dtype, CollectiveCostModel::Timing::kFitLine);
  if (line_cache != nullptr) cost.share_lines_in(*line_cache);
  Prediction out;
  out.layout = layout;
  out.parameters = cut.model.parameters();
  out.frozen = cut.model.frozen_parameters();
  for (int stage = 0; stage < layout.pp; ++stage) {
    Prediction one;
    add_memory(cut, stage, one);
    if (line_cache != nullptr) add_time(cut, stage, used, cost, one);
    if (one.device.total() > out.device.total()) {
      out.device = one.device;
      out.host = one.host;
      out.nvme = one.nvme;
    }
    if (one.step_us > out.step_us) {
      out.step_us = one.step_us;
      out.flops = one.flops;
      out.compute_us = one.compute_us;
      out.sent = one.sent;
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
