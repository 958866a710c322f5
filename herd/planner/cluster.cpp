#include "herd/planner/cluster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <variant>
#include <vector>

#include "herd/base/error.h"
#include "herd/planner/table_reader_internal.h"
#include "herd/spec/chain_table.h"
#include "herd/spec/run_keys.h"
#include "herd/spec/toml.h"
#include "herd/topology/presets.h"
#include "herd/topology/topology_text.h"

namespace herd::planner {
namespace {

// Maps a key of [device] to the rate that it sets.
struct RateKey {
  const char* key;
  double DeviceRates::*member;
};

constexpr std::array kRates = {RateKey{"matmul_flops_per_us", &DeviceRates::matmul_flops_per_us},
                               RateKey{"matmul_16bit_flops_per_us", &DeviceRates::matmul_16bit_flops_per_us},
                               RateKey{"attention_flops_per_us", &DeviceRates::attention_flops_per_us},
                               RateKey{"attention_16bit_flops_per_us", &DeviceRates::attention_16bit_flops_per_us},
                               RateKey{"bytes_per_us", &DeviceRates::bytes_per_us},
                               RateKey{"host_link_bytes_per_us", &DeviceRates::host_link_bytes_per_us},
                               RateKey{"nvme_bytes_per_us", &DeviceRates::nvme_bytes_per_us},
                               RateKey{"op_overhead_us", &DeviceRates::op_overhead_us}};

constexpr std::array kEfficiencies = {RateKey{"efficiency", &DeviceRates::efficiency},
                                      RateKey{"efficiency_16bit", &DeviceRates::efficiency_16bit}};

Measured read_measured(const toml::table& table, const std::string& name) {
  TableReader keys(table, name, "measured.");
  Measured out;
  out.configuration = keys.text("of");
  out.chain = keys.text("chain");
  if (const std::string precision = keys.text("precision"); !precision.empty()) out.precision = precision;
  out.forward_us = keys.numbers("forward_us");
  out.backward_us = keys.numbers("backward_us");
  out.loss_us = keys.number("loss_us");
  out.update_us_per_element = keys.number("update_us_per_element");
  out.norm_us_per_element = keys.number("norm_us_per_element");
  out.reduce_us_per_byte = keys.number("reduce_us_per_byte");
  out.read_us_per_sample = keys.number("read_us_per_sample");
  out.reads_ahead = keys.flag("reads_ahead");
  keys.refuse_others();
  if (out.forward_us.size() != out.backward_us.size())
    refuse(name, "measured.forward_us and measured.backward_us must be of the same blocks", "as many of both");
  return out;
}

MeasuredFiles read_files(const toml::table& table, const std::string& name) {
  TableReader keys(table, name, "files.");
  const MeasuredFiles out{.of = keys.text("of"), .depth = keys.bytes("depth"), .chunk = keys.bytes("chunk")};
  keys.refuse_others();
  constexpr int64_t kMaxDepth = 4096, kBlock = 4096, kMaxChunk = 1 << 30;
  if (out.depth < 1 || out.depth > kMaxDepth)
    refuse(name, "files.depth must be from 1 to 4096, got " + std::to_string(out.depth), "files.depth = 16");
  if (out.chunk < kBlock || out.chunk > kMaxChunk || out.chunk % kBlock != 0)
    refuse(name, "files.chunk must be whole blocks of 4096 bytes, at most 1 GiB, got " + std::to_string(out.chunk),
           "files.chunk = \"1MiB\"");
  return out;
}

// Returns the text of all that the times of a block's passes depend on.
std::string configuration_of(const spec::RunFile& run, const spec::Layout& layout, int threads) {
  spec::RunFile model_only;
  model_only.model = run.model;
  const std::string text = spec::to_toml(model_only);
  std::string model = text.substr(0, text.find("[data]"));
  std::replace(model.begin(), model.end(), '\n', ' ');
  std::replace(model.begin(), model.end(), '"', ' ');
  return model + "micro_batch = " + std::to_string(layout.micro_batch) + " threads = " + std::to_string(threads);
}

std::string chain_of(const spec::RunFile& run) { return run.chain ? run.chain->identity() : ""; }

// Says whether these passes were measured with the blocks of `run`, its micro-batch and as many threads.
bool are_passes_of(const Measured& measured, const spec::RunFile& run, const spec::Layout& layout, int threads) {
  return measured.chain == chain_of(run) && measured.configuration == configuration_of(run, layout, threads);
}

// Returns the precision of a run's passes and gradients, as text.
std::string precision_of(const spec::RunFile& run) {
  const std::string& precision = run.strategy.precision;
  const bool fp32_gradients = precision != "fp32" && run.strategy.gradient_precision == "fp32";
  return precision + (fp32_gradients ? ", gradients in fp32" : "");
}

// Says whether cores or devices compute the run's products at their 16-bit rates.
bool uses_16bit_rates(const spec::RunFile& run, const DeviceRates& device) {
  // Cores compute fp16 products in fp32.
  return run.strategy.precision == "bf16" || (device.has_own_device && run.strategy.precision == "fp16");
}

std::string list(const std::vector<double>& values) {
  std::string out;
  for (const double value : values) out += (out.empty() ? "[" : ", ") + spec::toml_number(value);
  return out.empty() ? "[]" : out + "]";
}

// Returns the topology's lines as a TOML text of several lines, or as one line where they contain '''.
std::string topology_toml(const Topology& topology) {
  const std::string text = to_text(topology);
  return text.find("'''") == text.npos ? "'''\n" + text + "'''" : spec::toml_quoted(text);
}

}  // namespace

Cluster parse_cluster(std::string_view text, const std::string& name) {
  Cluster cluster;
  const auto read_topology = [&](std::string_view of, const std::string& where) {
    try {
      cluster.topology = parse_topology(of);
    } catch (const Error& error) {
      throw Error(Code::kBadConfig, where + ": " + error.message());
    }
  };
  if (text.starts_with("herd-topology")) {
    read_topology(text, name);
    cluster.name = cluster.topology.name;
    return cluster;
  }
  const toml::table root = parse_table(text, name, "docs/formats/cluster.md");
  TableReader top(root, name, "");
  const toml::node* version = top.find("herd_cluster");
  if (version == nullptr || version->value_exact<int64_t>() != 1)
    refuse(name, "is no cluster file: herd_cluster = 1 must stand in it", "herd_cluster = 1 as its first line");
  cluster.name = top.text("name");
  const std::string topology = top.text("topology");
  if (topology.empty()) refuse(name, "states no topology", "topology = \"\"\"herd-topology 1 ...\"\"\"");
  read_topology(topology, name + ", topology");
  cluster.host_memory_bytes = top.bytes("host_memory");
  if (const toml::node* device = top.find("device")) {
    if (!device->is_table()) refuse(name, "device must be a table", "[device]");
    TableReader keys(*device->as_table(), name, "device.");
    cluster.device.has_own_device = keys.flag("own");
    cluster.device.memory_bytes = keys.bytes("memory");
    for (const RateKey& rate : kRates) keys.rate(rate.key, cluster.device.*rate.member);
    for (const RateKey& share : kEfficiencies) keys.share(share.key, cluster.device.*share.member);
    keys.refuse_others();
  }
  if (const toml::node* measured = top.find("measured")) {
    if (!measured->is_table()) refuse(name, "measured must be a table", "[measured]");
    cluster.measured = read_measured(*measured->as_table(), name);
  }
  if (const toml::node* files = top.find("files")) {
    if (!files->is_table()) refuse(name, "files must be a table", "[files]");
    cluster.files = read_files(*files->as_table(), name);
  }
  top.refuse_others();
  if (cluster.device.has_own_device && cluster.device.bytes_per_us <= 0)
    refuse(name, "a device of its own needs device.bytes_per_us", "device.bytes_per_us = 2e6");
  if (cluster.name.empty()) cluster.name = cluster.topology.name;
  return cluster;
}

std::string to_toml(const Cluster& cluster) {
  std::string out = "herd_cluster = 1\nname = " + spec::toml_quoted(cluster.name) + "\n";
  out += "host_memory = " + std::to_string(cluster.host_memory_bytes) + "\n";
  out += "topology = " + topology_toml(cluster.topology) + "\n\n[device]\n";
  out += std::string("own = ") + (cluster.device.has_own_device ? "true" : "false") + "\n";
  out += "memory = " + std::to_string(cluster.device.memory_bytes) + "\n";
  for (const RateKey& rate : kRates) {
    const double value = cluster.device.*rate.member;
    if (value > 0) out += std::string(rate.key) + " = " + spec::toml_number(value) + "\n";
  }
  for (const RateKey& efficiency : kEfficiencies) {
    const double value = cluster.device.*efficiency.member;
    if (value < 1) out += std::string(efficiency.key) + " = " + spec::toml_number(value) + "\n";
  }
  if (cluster.files)
    out += "\n[files]\nof = " + spec::toml_quoted(cluster.files->of) +
           "\ndepth = " + std::to_string(cluster.files->depth) + "\nchunk = " + std::to_string(cluster.files->chunk) +
           "\n";
  if (!cluster.measured) return out;
  const Measured& m = *cluster.measured;
  out += "\n[measured]\nof = " + spec::toml_quoted(m.configuration) +
         (m.chain.empty() ? "" : "\nchain = " + spec::toml_quoted(m.chain)) +
         "\nprecision = " + spec::toml_quoted(m.precision) + "\nforward_us = " + list(m.forward_us) +
         "\nbackward_us = " + list(m.backward_us) + "\nloss_us = " + spec::toml_number(m.loss_us) +
         "\nupdate_us_per_element = " + spec::toml_number(m.update_us_per_element) +
         "\nnorm_us_per_element = " + spec::toml_number(m.norm_us_per_element) +
         "\nreduce_us_per_byte = " + spec::toml_number(m.reduce_us_per_byte) + "\n";
  if (m.read_us_per_sample > 0)
    out += "read_us_per_sample = " + spec::toml_number(m.read_us_per_sample) +
           "\nreads_ahead = " + (m.reads_ahead ? "true" : "false") + "\n";
  return out;
}

DeviceRates assumed_device() {
  return {.has_own_device = true,
          .matmul_flops_per_us = 67e6,
          .matmul_16bit_flops_per_us = 989e6,
          .attention_flops_per_us = 67e6,
          .attention_16bit_flops_per_us = 989e6,
          .efficiency = 0.55,
          .efficiency_16bit = 0.55,
          .bytes_per_us = 2e6,
          .op_overhead_us = 10};
}

Cluster small_server(int cores) {
  Cluster cluster;
  cluster.topology = one_host(1, cores);
  cluster.name = "a small server of " + std::to_string(cores) + (cores == 1 ? " core" : " cores") + ", rates assumed";
  return cluster;
}

Cluster with_ranks(Cluster cluster, int ranks) {
  Topology& topology = cluster.topology;
  const Host first = topology.hosts.at(0);
  const bool all_equal =
      std::all_of(topology.hosts.begin(), topology.hosts.end(), [&](const Host& host) { return host == first; });
  // Ranks that share one host's cores fill it, however many they are.
  if (!cluster.device.has_own_device && topology.hosts.size() == 1) topology.hosts[0].ranks = ranks;
  if (topology.num_ranks() < ranks && all_equal) {
    const double scale = (ranks + first.ranks - 1) / first.ranks / static_cast<double>(topology.hosts.size());
    topology.spine_bytes_per_us *= scale;
    topology.hosts.assign(static_cast<size_t>((ranks + first.ranks - 1) / first.ranks), first);
  }
  topology = first_ranks(topology, ranks);
  return cluster;
}

Measured measured_of(const program::Calibration& calibration, const spec::RunFile& run, const spec::Layout& layout) {
  Measured out{.configuration = configuration_of(run, layout, calibration.threads),
               .chain = chain_of(run),
               .precision = precision_of(run),
               .forward_us = {},
               .backward_us = {}};
  for (const auto& [pass, us] : calibration.measured_us) {
    if (pass.first == program::OpKind::kForward) out.forward_us.push_back(us);
    if (pass.first == program::OpKind::kBackward) out.backward_us.push_back(us);
    if (pass.first == program::OpKind::kLoss) out.loss_us = us;
  }
  out.update_us_per_element = calibration.update_us_per_element;
  out.norm_us_per_element = calibration.norm_us_per_element;
  out.reduce_us_per_byte = calibration.reduce_us_per_byte;
  out.read_us_per_sample = calibration.read_us_per_sample;
  out.reads_ahead = calibration.reads_ahead;
  return out;
}

program::Calibration calibration_of(const Cluster& cluster, const spec::RunFile& run, const spec::Layout& layout) {
  const Host& host = cluster.topology.hosts.at(0);
  const DeviceRates& device = cluster.device;
  program::Calibration machine;
  const bool has_16bit_rate = uses_16bit_rates(run, device);
  const double efficiency = has_16bit_rate ? device.efficiency_16bit : device.efficiency;
  machine.matmul_flops_per_us =
      efficiency * (has_16bit_rate ? device.matmul_16bit_flops_per_us : device.matmul_flops_per_us);
  machine.attention_flops_per_us =
      efficiency * (has_16bit_rate ? device.attention_16bit_flops_per_us : device.attention_flops_per_us);
  machine.op_overhead_us = device.op_overhead_us;
  if (device.has_own_device) {  // a device's copy engines move data while its kernels run
    machine.cores = 2 * host.ranks;
    machine.threads = 1;
    machine.core_bytes_per_us = device.bytes_per_us;
    machine.host_bytes_per_us = device.bytes_per_us * host.ranks;
    machine.host_link_bytes_per_us = device.host_link_bytes_per_us;
  } else {
    machine.cores = host.cores;
    machine.threads =
        run.train.threads > 0 ? static_cast<int>(run.train.threads) : std::max(1, host.cores / host.ranks);
    machine.core_bytes_per_us = host.core_bytes_per_us;
    machine.host_bytes_per_us = host.memory_bytes_per_us;
    machine.emulated_link_bytes_per_us = static_cast<double>(run.memory.link) / 1e6;
  }
  if (device.has_own_device && run.memory.link > 0)
    machine.host_link_bytes_per_us = static_cast<double>(run.memory.link) / 1e6;
  machine.nvme_bytes_per_us =
      run.memory.nvme_bandwidth > 0 ? static_cast<double>(run.memory.nvme_bandwidth) / 1e6 : device.nvme_bytes_per_us;
  if (!cluster.measured || cluster.measured->precision != precision_of(run)) return machine;
  const Measured& m = *cluster.measured;
  machine.update_us_per_element = m.update_us_per_element;
  machine.norm_us_per_element = m.norm_us_per_element;
  machine.reduce_us_per_byte = m.reduce_us_per_byte;
  if (run.chain && m.chain == chain_of(run)) {
    machine.read_us_per_sample = m.read_us_per_sample;
    machine.reads_ahead = m.reads_ahead;
  }
  if (!are_passes_of(m, run, layout, machine.threads)) return machine;
  const int last = static_cast<int>(m.forward_us.size());
  for (int block = 0; block < last; ++block) {
    machine.measured_us[{program::OpKind::kForward, block}] = m.forward_us[static_cast<size_t>(block)];
    machine.measured_us[{program::OpKind::kBackward, block}] = m.backward_us[static_cast<size_t>(block)];
  }
  machine.measured_us[{program::OpKind::kLoss, last}] = m.loss_us;
  return machine;
}

bool has_times_of_another_chain(const Cluster& cluster, const spec::RunFile& run) {
  return run.chain && cluster.measured && cluster.measured->chain != chain_of(run);
}

Cluster with_micro_batch(Cluster cluster, const spec::RunFile& run, const spec::Layout& from, const spec::Layout& to) {
  if (!cluster.measured || from.micro_batch == to.micro_batch) return cluster;
  const int threads = calibration_of(cluster, run, from).threads;
  Measured& measured = *cluster.measured;
  if (!are_passes_of(measured, run, from, threads)) return cluster;
  const double scale = static_cast<double>(to.micro_batch) / static_cast<double>(from.micro_batch);
  measured.configuration = configuration_of(run, to, threads);
  for (double& us : measured.forward_us) us *= scale;
  for (double& us : measured.backward_us) us *= scale;
  measured.loss_us *= scale;
  return cluster;
}

Cluster without_measurements(Cluster cluster) {
  if (!cluster.measured) return cluster;
  cluster.measured.reset();
  cluster.files.reset();
  const int64_t memory_bytes = cluster.device.memory_bytes;
  cluster.device = cluster.device.has_own_device ? assumed_device() : DeviceRates{};
  cluster.device.memory_bytes = memory_bytes;
  if (cluster.device.has_own_device) return cluster;
  const Host assumed;
  for (Host& host : cluster.topology.hosts) {
    host.core_bytes_per_us = assumed.core_bytes_per_us;
    host.memory_bytes_per_us = assumed.memory_bytes_per_us;
  }
  return cluster;
}

Cluster cluster_of(const program::Calibration& calibration, const spec::RunFile& run, Topology topology) {
  Cluster cluster;
  DeviceRates& device = cluster.device;
  device.has_own_device = spec::kernels_of(run) == spec::Kernels::kDevice;
  if (device.has_own_device) {
    device.bytes_per_us = calibration.core_bytes_per_us;
    device.host_link_bytes_per_us = calibration.host_link_bytes_per_us;
  }
  for (Host& host : topology.hosts) {
    if (device.has_own_device) break;
    host.cores = calibration.cores;
    host.core_bytes_per_us = calibration.core_bytes_per_us;
    host.memory_bytes_per_us = calibration.host_bytes_per_us;
  }
  cluster.name = topology.name + ", measured";
  cluster.topology = std::move(topology);
  device.memory_bytes = run.memory.device_budget;
  const bool in_16bit = uses_16bit_rates(run, device);
  (in_16bit ? device.matmul_16bit_flops_per_us : device.matmul_flops_per_us) = calibration.matmul_flops_per_us;
  (in_16bit ? device.attention_16bit_flops_per_us : device.attention_flops_per_us) = calibration.attention_flops_per_us;
  device.op_overhead_us = calibration.op_overhead_us;
  device.nvme_bytes_per_us = calibration.nvme_bytes_per_us;
  return cluster;
}

}  // namespace herd::planner
