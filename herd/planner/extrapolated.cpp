#include "herd/planner/extrapolated_internal.h"

#include <algorithm>
#include <utility>

namespace herd::planner {
namespace {

spec::RunFile with_micro_batches(spec::RunFile run, const spec::Layout& layout, int64_t micro_batches) {
  run.train.micro_batch = layout.micro_batch;
  run.train.batch = layout.data_ranks() * layout.micro_batch * micro_batches;
  return run;
}

// Extrapolates the line through two predictions to `steps` times their distance beyond the second one.
class Line {
 public:
  explicit Line(double steps) : steps_(steps) {}
  double at(double first, double second) const { return second + steps_ * (second - first); }
  // Extrapolates memory. It never falls as micro-batches are added, except where an order has uneven groups of them.
  double most(double first, double second) const { return at(std::min(first, second), second); }
  TierBytes most(const TierBytes& first, const TierBytes& second) const {
    return {most(first.weights, second.weights), most(first.gradients, second.gradients),
            most(first.states, second.states), most(first.activations, second.activations),
            most(first.buffers, second.buffers)};
  }

 private:
  double steps_;
};

}  // namespace

std::optional<Prediction> extrapolate(const spec::RunFile& run, int ranks, const Cluster& cluster) {
  if (!spec::order_file_of(run).empty()) return std::nullopt;  // which is of one number of micro-batches
  const spec::Layout layout = spec::resolve_mesh(run, ranks);
  // Orders may go by groups of pp micro-batches: the line lies through steps with as many beyond whole groups.
  const int least = 2 + 2 * layout.pp;
  const int few = least + (layout.micro_batches - least % layout.pp + layout.pp) % layout.pp, more = few + layout.pp;
  if (layout.micro_batches <= more) return std::nullopt;
  const spec::RunFile longer = with_micro_batches(run, layout, more);
  if (!why_no_program(longer, spec::resolve_mesh(longer, ranks)).empty()) return std::nullopt;
  const Prediction first = predict(with_micro_batches(run, layout, few), ranks, cluster);
  Prediction out = predict(longer, ranks, cluster);
  const Line line(1.0 * (layout.micro_batches - more) / (more - few));
  out.layout = layout;
  out.simulation.reset();
  out.device = line.most(first.device, out.device);
  out.host = line.most(first.host, out.host);
  out.nvme = line.most(first.nvme, out.nvme);
  out.device_bound = line.most(first.device_bound, out.device_bound);
  for (const auto number : {&Prediction::flops, &Prediction::compute_us, &Prediction::step_us})
    out.*number = line.at(first.*number, out.*number);
  for (auto& [axis, bytes] : out.sent) bytes = line.at(first.sent.at(axis), bytes);
  return out;
}

Prediction predict_extrapolated(const spec::RunFile& run, int ranks, const Cluster& cluster) {
  auto out = extrapolate(run, ranks, cluster);
  return out ? std::move(*out) : predict(run, ranks, cluster);
}

}  // namespace herd::planner
