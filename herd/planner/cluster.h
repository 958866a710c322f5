// Describes the machines of a plan: a topology, and the device of a rank. It comes from a file, from a run that
// measured it, or from the defaults of a small server. Grammar: docs/formats/cluster.md.
// Threads: plain data and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/program/simulate.h"
#include "herd/spec/build_model_table.h"
#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"
#include "herd/topology/topology.h"

namespace herd::planner {

// Describes what a rank computes with.
struct DeviceRates {
  // true: the rank has a device of its own; false: ranks share their host's cores and memory
  bool has_own_device = false;
  spec::Kernels kernels() const { return has_own_device ? spec::Kernels::kDevice : spec::Kernels::kCpu; }
  int64_t memory_bytes = 0;                  // bytes per rank; 0 = not stated
  double matmul_flops_per_us = 90e3;         // fp32, of the device or of one core
  double matmul_16bit_flops_per_us = 180e3;  // 16 bit
  double attention_flops_per_us = 30e3;      // the fused kernel, fp32
  double attention_16bit_flops_per_us = 60e3;
  // Share of these rates that the products and the attention of a step keep up; 1 = all, as measured rates do.
  double efficiency = 1, efficiency_16bit = 1;
  double bytes_per_us = 0;               // rate of an own device's memory; a host's is in the topology
  double host_link_bytes_per_us = 25e3;  // between an own device and host memory: PCIe 4.0 x16, each way
  double nvme_bytes_per_us = 3e3;        // rate of a rank's share of the host's drives
  double op_overhead_us = 50;
  bool operator==(const DeviceRates&) const = default;
};

// Holds the times that a run measured with its own blocks, update, norm and reduction (train/calibrate.h).
struct Measured {
  std::string configuration;       // model, micro-batch and threads that the passes were measured with, as text
  std::string chain = {};          // spec::ChainTable::identity() of a program's own blocks; empty for herd's models
  std::string precision = "fp32";  // of the run that measured: "fp32", "bf16", "bf16, gradients in fp32"
  std::vector<double> forward_us;  // of each block of the chain but the last
  std::vector<double> backward_us;
  double loss_us = 0;
  double update_us_per_element = 0, norm_us_per_element = 0, reduce_us_per_byte = 0;
  double read_us_per_sample = 0;  // of a program's own data
  bool reads_ahead = false;
  bool operator==(const Measured&) const = default;
};

// Says how a run asked its files, after it had compared several ways (train/calibrate_files.h). The rate of that way is
// DeviceRates::nvme_bytes_per_us.
struct MeasuredFiles {
  std::string of;     // folders and their devices
  int64_t depth = 0;  // requests at a time for each file
  int64_t chunk = 0;  // bytes of each
  bool operator==(const MeasuredFiles&) const = default;
};

// Returns rates that a GPU of a server has, before any is measured.
DeviceRates assumed_device();

struct Cluster {
  std::string name;
  Topology topology;
  DeviceRates device;
  int64_t host_memory_bytes = 0;  // bytes per host; 0 = not stated
  std::optional<Measured> measured = {};
  std::optional<MeasuredFiles> files = {};
  bool operator==(const Cluster&) const = default;
};

// Throws kBadConfig with the key, the rule and the nearest valid name. A topology file alone is a cluster of the
// default device.
Cluster parse_cluster(std::string_view text, const std::string& name);
std::string to_toml(const Cluster& cluster);  // parse_cluster(to_toml(c), ..) == c

// Returns one host with the default rates.
Cluster small_server(int cores);
// Returns a cluster of `ranks`: the first ranks of this one. Where this cluster has fewer ranks and its hosts are
// equal, the result has as many such hosts as `ranks` need. Throws kBadConfig where hosts differ and are too few.
Cluster with_ranks(Cluster cluster, int ranks);

// Returns what simulate() needs to know of rank 0's host. Measured passes count for the model and micro-batch that they
// were measured with; other runs use the rates. The time of a program's own data counts for its own chain.
program::Calibration calibration_of(const Cluster& cluster, const spec::RunFile& run, const spec::Layout& layout);
// Says whether the run trains a program's own blocks, and the cluster has measured times that are not of these blocks.
bool has_times_of_another_chain(const Cluster& cluster, const spec::RunFile& run);
// Scales the passes that were measured with `run` and `from` to the micro-batch of `to`, by its number of samples.
// A cluster without such passes is returned as it is.
Cluster with_micro_batch(Cluster cluster, const spec::RunFile& run, const spec::Layout& from, const spec::Layout& to);
// Drops Cluster::measured, and gives hosts and devices the default rates in place of measured ones. A cluster that no
// run has measured is returned as it is. So a job knows its cluster before it measures.
Cluster without_measurements(Cluster cluster);
// Returns the cluster of a run that has measured `calibration` on `topology`, without Cluster::measured.
Cluster cluster_of(const program::Calibration& calibration, const spec::RunFile& run, Topology topology);
// Returns the measured times of `calibration`, as those of this run's model, micro-batch and threads.
Measured measured_of(const program::Calibration& calibration, const spec::RunFile& run, const spec::Layout& layout);

}  // namespace herd::planner
