#include "herd/planner/extrapolated_internal.h"

#include <utility>

namespace herd::planner {
namespace {

spec::RunFile with_micro_batches(spec::RunFile run, const spec::Layout& layout, int64_t micro_batches) {
  run.train.micro_batch = layout.micro_batch;
  run.train.batch = layout.data_ranks() * layout.micro_batch * micro_batches;
  return run;
}

// On the line through two predictions, `steps` times as far beyond the second as that is beyond the first.
class Line {
 public:
  explicit Line(double steps) : steps_(steps) {}
  double at(double first, double second) const { return second + steps_ * (second - first); }
  TierBytes at(const TierBytes& first, const TierBytes& second) const {
    return {at(first.weights, second.weights), at(first.gradients, second.gradients), at(first.states, second.states),
            at(first.activations, second.activations), at(first.buffers, second.buffers)};
  }

 private:
  double steps_;
};

}  // namespace

std::optional<Prediction> on_line(const spec::RunFile& run, int ranks, const Cluster& cluster) {
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
  out.device = line.at(first.device, out.device);
  out.host = line.at(first.host, out.host);
  out.nvme = line.at(first.nvme, out.nvme);
  for (const auto number :
       {&Prediction::device_bound, &Prediction::flops, &Prediction::compute_us, &Prediction::step_us})
    out.*number = line.at(first.*number, out.*number);
  for (auto& [axis, bytes] : out.sent) bytes = line.at(first.sent.at(axis), bytes);
  return out;
}

Prediction predict_extrapolated(const spec::RunFile& run, int ranks, const Cluster& cluster) {
  auto out = on_line(run, ranks, cluster);
  return out ? std::move(*out) : predict(run, ranks, cluster);
}

}  // namespace herd::planner
