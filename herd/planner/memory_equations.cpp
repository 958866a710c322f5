#include <algorithm>

#include "herd/planner/equations_internal.h"
#include "herd/program/pool.h"
#include "herd/spec/model_states.h"
#include "herd/spec/pipeline.h"
#include "herd/strategies/strategy_table.h"

namespace herd::planner {

double kept_bytes(const PartitionedModel& cut, size_t b) {
  const auto& block = cut.model.blocks[b];
  if (cut.recomputed(b))
    return static_cast<double>((cut.index_in_segment(b) == 0 ? block.input_bytes : 0) + block.routing_bytes);
  return static_cast<double>(block.graph_bytes);
}

namespace {

// Returns the bytes that one micro-batch holds at its peak, without scratch. `scratch` becomes the scratch bytes of the
// op at the peak.
double peak_of_micro_batch(const PartitionedModel& cut, const BlockInterval& blocks, double& scratch) {
  double kept_before = 0, peak = 0;
  // Raises the peak to `held` bytes, with the op's scratch bytes apart, where both together are more.
  const auto consider = [&](double held, int64_t more) {
    if (held + static_cast<double>(more) <= peak + scratch) return;
    peak = held;
    scratch = static_cast<double>(more);
  };
  const double targets = blocks.end == cut.model.blocks.size() ? static_cast<double>(cut.model.target_bytes) : 0;
  for (size_t b = blocks.begin; b < blocks.end; ++b) {  // forward, where a small model may peak
    const auto& block = cut.model.blocks[b];
    const double in = static_cast<double>(block.input_bytes);
    if (cut.is_head(b)) {
      consider(kept_before + targets + (b > cut.first ? 2 : 1) * in, block.forward.scratch_bytes);
      break;
    }
    const double graph = cut.recomputed(b) ? in + static_cast<double>(block.routing_bytes) : kept_bytes(cut, b) + in;
    consider(kept_before + targets + graph + static_cast<double>(block.output_bytes), block.forward.scratch_bytes);
    kept_before += kept_bytes(cut, b);
  }
  for (size_t b = blocks.end; b-- > blocks.begin;) {  // backward
    const auto& block = cut.model.blocks[b];
    if (cut.is_head(b) || b < cut.first) continue;
    kept_before -= kept_bytes(cut, b);
    double graphs = static_cast<double>(block.graph_bytes);
    if (cut.recomputed(b)) {  // the graphs of its segment exist again up to this block
      const size_t first = b - cut.index_in_segment(b);
      for (size_t other = std::max(first, blocks.begin); other < b; ++other)
        graphs += static_cast<double>(cut.model.blocks[other].graph_bytes) - kept_bytes(cut, other);
    }
    const double dy_bytes = static_cast<double>(block.output_bytes);
    if (cut.ends_segment(b, blocks))
      consider(kept_before + graphs + dy_bytes + static_cast<double>(block.input_bytes + block.routing_bytes),
               block.forward.scratch_bytes);
    const double dx_bytes = b > cut.first ? static_cast<double>(block.input_bytes) : 0;
    consider(kept_before + graphs + dy_bytes + dx_bytes, block.backward.scratch_bytes);
  }
  return peak;
}

// Returns the bytes of the buffers that the uses of a pool need.
double pool_bytes(const PartitionedModel& cut, const std::vector<program::PoolUse>& uses, int depth) {
  std::vector<int64_t> bytes;
  for (int g = 0; g < static_cast<int>(cut.model.groups.size()); ++g) bytes.push_back(cut.shard_bytes(g) * cut.shards);
  return static_cast<double>(program::assign_pool(bytes, uses, depth).bytes());
}

}  // namespace

void add_standing(const PartitionedModel& cut, const BlockInterval& blocks, const Visits& uses, Prediction& out) {
  const spec::StateBytes bytes = spec::state_bytes(cut.run);
  double states = 0;
  for (const int g : cut.groups_of(blocks)) {
    const double whole = static_cast<double>(cut.zero > 0 ? cut.shard_bytes(g) * cut.shards : cut.weight_bytes(g));
    const double part = static_cast<double>(cut.zero > 0 ? cut.shard_bytes(g) : cut.weight_bytes(g));
    if (cut.frozen(g)) {
      out.device.weights +=
          cut.zero >= 3 && !uses.kept_whole.contains(g) ? part : static_cast<double>(cut.weight_bytes(g));
      continue;
    }
    out.device.weights += cut.zero >= 3 && !uses.kept_whole.contains(g) ? part : whole;
    out.device.gradients += cut.gradient_ratio() * (cut.zero >= 2 ? part : whole);
    states += part / bytes.weight * bytes.states;
  }
  const std::string& offload = cut.run.strategy.offload;
  (offload == "states" ? out.host.states : offload == "nvme" ? out.nvme.states : out.device.states) += states;
}

double add_activations(const PartitionedModel& cut, const BlockInterval& blocks, const InFlight& in_flight,
                       Prediction& out) {
  double scratch = 0, kept_per_micro_batch = 0, pending = 0;
  const double current_peak = peak_of_micro_batch(cut, blocks, scratch);
  for (size_t b = blocks.begin; b < blocks.end; ++b) {
    kept_per_micro_batch += cut.is_head(b) ? 0 : kept_bytes(cut, b);
    pending += static_cast<double>(cut.model.blocks[b].pending_bytes);
  }
  out.device.activations += current_peak + (in_flight.graphs - 1) * kept_per_micro_batch + in_flight.pending * pending;
  return scratch;
}

void add_memory(const PartitionedModel& cut, int stage, Prediction& out) {
  const BlockInterval blocks = cut.blocks_of(stage);
  const Visits uses = cut.zero >= 2 ? cut.visits(blocks) : Visits{};
  add_standing(cut, blocks, uses, out);
  out.device.buffers = add_activations(cut, blocks, in_flight_of(cut.run, cut.layout, stage), out);
  if (cut.zero < 2) return;
  const program::SlotRules rules = strategies::slot_rules(cut.run);
  out.device.buffers += cut.gradient_ratio() * pool_bytes(cut, uses.gradients, rules.gradient_buffers);
  if (cut.zero >= 3) out.device.buffers += pool_bytes(cut, uses.weights, rules.gather_buffers);
}

InFlight in_flight_of(const spec::RunFile& run, const spec::Layout& layout, int stage) {
  if (layout.pp == 1) return {};
  const bool splits_backward = run.strategy.pipeline == "zero_bubble_h1";
  return {spec::micro_batches_in_flight(spec::parse_pipeline(run.strategy.pipeline), layout.pp, layout.micro_batches,
                                        stage),
          splits_backward ? static_cast<double>(std::min(stage, layout.micro_batches)) : 0.0};
}

}  // namespace herd::planner
