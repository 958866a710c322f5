#include "herd/planner/prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/planner/extrapolated_internal.h"
#include "herd/planner/partitioned_model_internal.h"
#include "herd/planner/stage_search.h"
#include "herd/program/collective_message.h"
#include "herd/program/memory_bound.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/compute.h"
#include "herd/strategies/strategy_table.h"
#include "herd/strategies/techniques.h"

namespace herd::planner {
namespace {

using program::OpKind;
using program::Program;
using program::Tier;

constexpr size_t kMaxSimulatedOps = 20000;      // ops of a rank's step; to simulate so many takes about 1 s
constexpr size_t kMaxSimulatedAllOps = 500000;  // ops of all ranks that a simulation of a host has

TierBytes tier_bytes(const program::Peak& peak) {
  const program::BytesByUse bytes = by_use(peak.by_kind, peak.bytes);
  const auto of = [&](program::MemoryUse use) { return static_cast<double>(bytes[static_cast<size_t>(use)]); };
  TierBytes out = {of(program::MemoryUse::kWeights), of(program::MemoryUse::kGradients),
                   of(program::MemoryUse::kStates), of(program::MemoryUse::kActivations),
                   of(program::MemoryUse::kBuffers)};
  // Where activations that are counted twice share memory, the op's scratch is negative.
  if (out.buffers < 0) out.activations += std::exchange(out.buffers, 0);
  return out;
}

// Adds the bytes that a rank sends on each axis: 2(n-1)/n of an all-reduce's message, (n-1)/n of a gather's or a
// reduce-scatter's, as much of a broadcast's or a reduce's, which is the mean over its ranks, what it sends to other
// stages, and to and from parameter servers.
void add_traffic(const Program& step, std::map<std::string, double>& sent) {
  for (const program::Op& op : step.ops) {
    if (op.kind == OpKind::kSend)
      sent[program::axis_name(step.mesh, op.axis)] += static_cast<double>(step.values.at(op.reads[0]).bytes);
    if (program::is_served(op)) {
      sent[program::axis_name(step.mesh, op.axis)] += static_cast<double>(program::served_bytes_sent(step, op));
      continue;
    }
    if (!is_collective(op)) continue;
    const double n = step.mesh.size(op.axis), whole = static_cast<double>(message_bytes(step, op));
    sent[program::axis_name(step.mesh, op.axis)] +=
        (program::traffic_kind(op) == OpKind::kAllReduce ? 2 : 1) * whole * (n - 1) / n;
  }
}

// Adds the bytes that offload moves between a device and its host.
void add_host_link_traffic(const Program& step, const spec::ModelTable& model, Prediction& out) {
  for (const program::Op& op : step.ops) {
    if (is_pass(op))
      out.host_link_in += static_cast<double>(direct_bytes(step, op, model.blocks[static_cast<size_t>(op.block)]));
    if ((op.kind != OpKind::kEvict && op.kind != OpKind::kFetch) || op.lane == program::Lane::kIo) continue;
    double& way = op.kind == OpKind::kEvict ? out.host_link_out : out.host_link_in;
    way += static_cast<double>(copied_bytes(step, op));
  }
}

// Adds the bytes that a rank sends in collectives inside blocks.
void add_inner_traffic(const Program& step, const spec::ModelTable& model, std::map<std::string, double>& sent) {
  for (const program::Op& op : step.ops) {
    if (!is_pass(op)) continue;
    for (const auto& collective : model.blocks[static_cast<size_t>(op.block)].inner) {
      const int times = runs_of_inner_collective(collective, op);
      const double n = step.mesh.size(step.mesh.find(collective.axis));
      sent[collective.axis] +=
          times * (collective.is_all_reduce ? 2 : 1) * static_cast<double>(collective.bytes) * (n - 1) / n;
    }
  }
}

// Returns the time of a rank's arithmetic alone, and adds its FLOPs to `flops`.
double arithmetic_us(const Program& step, const spec::ModelTable& model, const program::Calibration& machine,
                     double& flops) {
  double us = 0;
  for (const program::Op& op : step.ops) {
    if (!is_pass(op)) continue;
    const spec::PassCost cost = cost_of(op, model.blocks[static_cast<size_t>(op.block)]);
    flops += cost.matmul_flops + cost.attention_flops;
    us += (cost.matmul_flops / machine.matmul_flops_per_us + cost.attention_flops / machine.attention_flops_per_us) /
          machine.threads;
  }
  return us;
}

// Returns the index of the first program with the largest bound of device memory.
size_t index_of_largest(const std::vector<Program>& programs) {
  size_t largest = 0;
  int64_t bytes = -1;
  for (size_t i = 0; i < programs.size(); ++i) {
    if (i > 0 && programs[i].ops == programs[i - 1].ops && programs[i].values == programs[i - 1].values) continue;
    const int64_t bound = peak_bound(programs[i], Tier::kDevice, programs).bytes;
    if (bound > bytes) largest = i, bytes = bound;
  }
  return largest;
}

}  // namespace

double Prediction::sent_bytes() const {
  double sum = 0;
  for (const auto& [axis, bytes] : sent) sum += bytes;
  return sum;
}

namespace {

// Estimates the ops of a step of one rank that has all blocks.
size_t ops_of_step(const spec::RunFile& run, const spec::Layout& layout) {
  const size_t blocks = static_cast<size_t>(2 * run.model.layers + 4);
  return 2 * blocks * static_cast<size_t>(layout.micro_batches);
}

// Counts the ranks of the first host that a simulation needs: those that have a program. Ranks with a device of their
// own do not slow each other down, so one rank of each stage is enough.
size_t ranks_to_simulate(const Cluster& cluster, const spec::Layout& layout) {
  if (cluster.device.has_own_device) return 1;
  return static_cast<size_t>(std::min(cluster.topology.hosts[0].ranks, layout.world_size));
}

// Says why the programs of a host's ranks are not simulated; empty if they can be.
std::string why_not_simulated(const spec::RunFile& run, const spec::Layout& layout, const Cluster& sized_cluster) {
  if (std::string why = why_no_program(run, layout); !why.empty()) return why;
  const size_t ranks = ranks_to_simulate(sized_cluster, layout), ops = ops_of_step(run, layout);
  if (ranks == 1 || ranks * ops <= kMaxSimulatedAllOps) return "";
  return "steps of " + std::to_string(ops) + " ops on " + std::to_string(ranks) +
         " ranks that share a host's cores are too long to simulate";
}

}  // namespace

std::string why_no_program(const spec::RunFile& run, const spec::Layout& layout) {
  if (const auto without = strategies::first_unsupported_setting(run)) return without->setting + " has no rewrite";
  const size_t ops = ops_of_step(run, layout);
  if (ops > kMaxSimulatedOps) return "a step of " + std::to_string(ops) + " ops is too long to simulate";
  return "";
}

std::vector<int> ranks_with_all_stages(std::vector<int> ranks, const spec::Layout& layout) {
  const size_t given = ranks.size();
  for (size_t i = 0; i < given; ++i) {
    for (const int peer : layout.ranks_of_pipeline(ranks[i])) {
      if (std::find(ranks.begin(), ranks.end(), peer) == ranks.end()) ranks.push_back(peer);
    }
  }
  return ranks;
}

program::Simulation simulate_on(const std::vector<Program>& programs, const spec::ModelTable& model,
                                const Cluster& cluster, program::Calibration calibration, size_t host_ranks,
                                size_t memory_rank) {
  const double hosts = static_cast<double>(programs.size()) / static_cast<double>(host_ranks);
  calibration.cores = static_cast<int>(std::lround(calibration.cores * hosts));
  calibration.host_bytes_per_us *= hosts;
  // A measured time of reductions on this host replaces the cost model.
  if (calibration.reduce_us_per_byte > 0 && cluster.topology.hosts.size() == 1)
    return simulate(programs, model, calibration, program::SharedMemoryCost(calibration), memory_rank);
  CollectiveCostModel cost(cluster.topology, model.compute_dtype);
  if (calibration.host_link_bytes_per_us > 0) cost.set_host_rate(calibration.host_link_bytes_per_us);
  return simulate(programs, model, calibration, cost, memory_rank);
}

Prediction predict(const spec::RunFile& run, int ranks, const Cluster& cluster) {
  return predict_stages(run, ranks, cluster, {});
}

Prediction predict_stages(const spec::RunFile& run, int ranks, const Cluster& cluster,
                          const std::vector<int>& stage_of_layers) {
  spec::Layout layout = spec::resolve_mesh(run, ranks);
  const Cluster sized_cluster = with_ranks(cluster, layout.world_size + layout.dedicated_servers);
  const std::string why = why_not_simulated(run, layout, sized_cluster);
  if (!why.empty()) {
    if (!strategies::first_unsupported_setting(run)) {
      if (auto extrapolated = extrapolate(run, ranks, cluster)) return std::move(*extrapolated);
    }
    if (const auto beyond = beyond_equations(run, layout)) {
      throw Error(Code::kBadConfig, why + ", and no equation covers " + beyond->setting + "\n  fix: " +
                                        (strategies::first_unsupported_setting(run) ? "" : "fewer micro-batches, or ") +
                                        beyond->fix);
    }
    CollectiveCostModel::LineCache line_cache;
    Prediction out = predict_by_equations(run, ranks, cluster, line_cache);
    out.why_equations = why;
    return out;
  }
  const spec::Kernels kernels = sized_cluster.device.kernels();
  const spec::ModelTable model = spec::program_table(run, layout.micro_batch, kernels);
  layout.pipeline.stage_of_layers = stage_of_layers;
  if (stage_of_layers.empty()) layout = with_stage_cut(run, model, std::move(layout), kernels);
  std::vector<int> ranks_of_host(ranks_to_simulate(sized_cluster, layout));
  std::iota(ranks_of_host.begin(), ranks_of_host.end(), 0);
  std::vector<Program> programs;
  for (const int rank : ranks_with_all_stages(ranks_of_host, layout))
    programs.push_back(strategies::compile_step(run, model, layout, rank));
  const size_t largest = index_of_largest(programs);
  const Program& step = programs[largest];
  const program::Calibration machine = calibration_of(sized_cluster, run, layout);

  Prediction out;
  out.layout = layout;
  out.parameters = model.parameters();
  out.frozen = model.frozen_parameters();
  out.active = spec::active_parameters(model);
  out.simulated = true;
  out.simulation = simulate_on(programs, model, sized_cluster, machine, ranks_of_host.size(), largest);
  out.step_us = out.simulation->step_us;
  if (layout.pp > 1) out.idle_share = out.simulation->idle_share;
  if (machine.host_link_bytes_per_us > 0) add_host_link_traffic(step, model, out);
  const program::Peak& peak = out.simulation->device_peak;
  out.device = tier_bytes(peak);
  if (peak.op >= 0) {
    const program::Op& at = step.ops[static_cast<size_t>(peak.op)];
    out.peak_at = describe(step, at);
  }
  out.device_bound = static_cast<double>(peak_bound(step, Tier::kDevice, programs).bytes);
  out.host = tier_bytes(peak_bound(step, Tier::kHost, programs));
  out.nvme = tier_bytes(peak_bound(step, Tier::kNvme, programs));
  out.compute_us = arithmetic_us(step, model, machine, out.flops);
  add_traffic(step, out.sent);
  add_inner_traffic(step, model, out.sent);
  return out;
}

}  // namespace herd::planner
