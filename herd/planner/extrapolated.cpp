#include "herd/planner/extrapolated_internal.h"

#include <algorithm>
#include <utility>

#include "herd/planner/stage_search.h"
#include "herd/spec/build_model_table.h"

namespace herd::planner {
namespace {

spec::RunFile with_micro_batches(spec::RunFile run, const spec::Layout& layout, int64_t micro_batches) {
  run.train.micro_batch = layout.micro_batch;
  run.train.batch = layout.data_ranks() * layout.micro_batch * micro_batches;
  return run;
}

double at(const ShorterRuns& runs, double first, double second) { return second + runs.steps * (second - first); }

TierBytes bytes_at(const ShorterRuns& runs, const TierBytes& first, const TierBytes& second) {
  return {runs.bytes_at(first.weights, second.weights), runs.bytes_at(first.gradients, second.gradients),
          runs.bytes_at(first.states, second.states), runs.bytes_at(first.activations, second.activations),
          runs.bytes_at(first.buffers, second.buffers)};
}

}  // namespace

std::optional<ShorterRuns> shorter_runs(const spec::RunFile& run, const spec::Layout& layout) {
  if (!spec::order_file_of(run).empty()) return std::nullopt;  // the file holds an order of one number of micro-batches
  // Orders may work in groups of pp micro-batches, so all three steps have as many micro-batches beyond whole groups.
  const int min_count = 2 + 2 * layout.pp;
  const int first_count = min_count + (layout.micro_batches - min_count % layout.pp + layout.pp) % layout.pp;
  const int second_count = first_count + layout.pp;
  if (layout.micro_batches <= second_count) return std::nullopt;
  ShorterRuns out{with_micro_batches(run, layout, first_count), with_micro_batches(run, layout, second_count),
                  1.0 * (layout.micro_batches - second_count) / (second_count - first_count)};
  if (!why_no_program(out.second, spec::resolve_mesh(out.second, layout.world_size)).empty()) return std::nullopt;
  return out;
}

std::optional<Prediction> extrapolate(const spec::RunFile& run, int ranks, const Cluster& cluster) {
  spec::Layout layout = spec::resolve_mesh(run, ranks);
  const std::optional<ShorterRuns> runs = shorter_runs(run, layout);
  if (!runs) return std::nullopt;
  if (layout.pp > 1) {
    const spec::Kernels kernels = with_ranks(cluster, ranks).device.kernels();
    layout = with_stage_cut(run, spec::program_table(run, layout.micro_batch, kernels), std::move(layout), kernels);
  }
  const std::vector<int>& stages = layout.pipeline.stage_of_layers;
  const Prediction first = predict_stages(runs->first, ranks, cluster, stages);
  Prediction out = predict_stages(runs->second, ranks, cluster, stages);
  out.layout = layout;
  out.simulation.reset();
  out.device = bytes_at(*runs, first.device, out.device);
  out.host = bytes_at(*runs, first.host, out.host);
  out.nvme = bytes_at(*runs, first.nvme, out.nvme);
  out.device_bound = runs->bytes_at(first.device_bound, out.device_bound);
  const double first_idle_us = first.idle_share * first.step_us, idle_us = out.idle_share * out.step_us;
  for (const auto figure : {&Prediction::flops, &Prediction::compute_us, &Prediction::step_us,
                            &Prediction::host_link_out, &Prediction::host_link_in})
    out.*figure = at(*runs, first.*figure, out.*figure);
  out.idle_share = std::max(0.0, at(*runs, first_idle_us, idle_us)) / out.step_us;
  for (auto& [axis, bytes] : out.sent) bytes = at(*runs, first.sent.at(axis), bytes);
  return out;
}

Prediction predict_extrapolated(const spec::RunFile& run, int ranks, const Cluster& cluster) {
  auto out = extrapolate(run, ranks, cluster);
  return out ? std::move(*out) : predict(run, ranks, cluster);
}

}  // namespace herd::planner
