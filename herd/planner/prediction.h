// Predicts what a run needs and takes: bytes on each memory tier of a rank, arithmetic, traffic and time. Where a
// Program can be built for the run, it is built as herd train does and simulated. A step that is too long for that is
// extrapolated from two of fewer micro-batches. Otherwise equations over the same model table and the same costs of
// collectives predict it.
// Threads: pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "herd/planner/cluster.h"
#include "herd/planner/collective_cost_model.h"
#include "herd/program/simulate.h"
#include "herd/spec/layout.h"
#include "herd/spec/model_table.h"

namespace herd::planner {

// Holds the bytes of one rank in one tier at the moment when it holds most.
struct TierBytes {
  double weights = 0, gradients = 0, states = 0;
  double activations = 0;  // inputs of blocks, graphs, their gradients, labels
  double buffers = 0;      // gathered weights, scratch of ops
  double total() const { return weights + gradients + states + activations + buffers; }
};

struct Prediction {
  spec::Layout layout;
  int64_t parameters = 0;
  int64_t frozen = 0;         // number of parameters that are not trained
  int64_t active = 0;         // number of parameters that a token uses: less than all of a mixture of experts
  bool simulated = false;     // false: by equations
  std::string why_equations;  // why no Program was simulated
  TierBytes device, host, nvme;
  double device_bound = 0;  // upper bound of bytes over every legal order of the ops; budgets are compared with it
  std::string peak_at;      // op at the peak: "loss of block13 mb0"; empty by equations
  double flops = 0;         // FLOP of a rank and step, recompute included
  double compute_us = 0;    // time of its arithmetic alone, at the rates of the cluster
  double step_us = 0;
  double idle_share = 0;               // share of the passes' time in which a pipeline's ranks are idle
  std::map<std::string, double> sent;  // mesh axis -> bytes that a rank sends in a step
  // Bytes that a rank moves between its own device and the host's memory in a step, each way.
  double host_link_out = 0, host_link_in = 0;
  std::optional<program::Simulation> simulation;
  double sent_bytes() const;
  double tokens_per_s() const { return 1e6 * static_cast<double>(layout.tokens) / step_us; }
};

// Says why no Program can be built for this run; empty if one can.
std::string why_no_program(const spec::RunFile& run, const spec::Layout& layout);

// Throws kBadConfig for a mesh that does not cover the ranks, and where neither way can predict the run.
Prediction predict(const spec::RunFile& run, int ranks, const Cluster& cluster);

// Predicts for searches. Where the step has many micro-batches, it uses two programs of few, since its time, traffic
// and bytes lie on the line through theirs. Then the result has no timeline.
Prediction predict_extrapolated(const spec::RunFile& run, int ranks, const Cluster& cluster);

// Predicts by equations alone. It takes microseconds where `line_cache` has the lines of the layout's collectives
// (CollectiveCostModel::Line), and adds those that it lacks.
Prediction predict_by_equations(const spec::RunFile& run, int ranks, const Cluster& cluster,
                                CollectiveCostModel::LineCache& line_cache);

// Predicts memory alone, by equations; it is quick, since it needs no times.
Prediction memory_by_equations(const spec::RunFile& run, int ranks, const Cluster& cluster);

// Returns the ranks whose programs a simulation of `ranks` needs: first `ranks` in their order, then the other ranks of
// their pipelines, which have the other stages.
std::vector<int> ranks_with_all_stages(std::vector<int> ranks, const spec::Layout& layout);

// Simulates one step of the programs of ranks_with_all_stages(). The first `host_ranks` of them share one host, and so
// do all others. `calibration` is that of one host. The memory in the result is that of programs[memory_rank].
program::Simulation simulate_on(const std::vector<program::Program>& programs, const spec::ModelTable& model,
                                const Cluster& cluster, program::Calibration calibration, size_t host_ranks,
                                size_t memory_rank = 0);

}  // namespace herd::planner
