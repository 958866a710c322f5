#include "herd/planner/device_table.h"

#include <algorithm>
#include <cstdio>

#include "herd/planner/table_reader_internal.h"

namespace herd::planner {
namespace {

constexpr double kPerGb = 1e3, kPerTera = 1e6;  // of a second, in microseconds
constexpr int kMaxPerHost = 1024;
const std::string kExample = "docs/formats/devices.md";

std::string number(double value) {  // for people
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

template <class Known>
const Known* find_named(const std::vector<Known>& all, std::string_view name) {
  const auto at = std::ranges::find(all, name, &Known::name);
  return at == all.end() ? nullptr : &*at;
}

template <class Known>
std::vector<std::string> names_of(const std::vector<Known>& all) {
  std::vector<std::string> names;
  for (const Known& one : all) names.push_back(one.name);
  return names;
}

const toml::table& table_at(TableReader& keys, const std::string& key, const std::string& name) {
  const toml::node* node = keys.find(key);
  if (node == nullptr || !node->is_table()) refuse(name, key + " must be a table", "[" + key + "], as in " + kExample);
  return *node->as_table();
}

std::string needed(TableReader& keys, const std::string& key, const std::string& name, const std::string& section) {
  std::string text = keys.text(key);
  if (text.empty()) refuse(name, section + key + " is missing", key + " = \"..\", as in " + kExample);
  return text;
}

double needed_rate(TableReader& keys, const std::string& key, const std::string& name, const std::string& section) {
  double rate = 0;
  keys.rate(key, rate);
  if (rate == 0) refuse(name, section + key + " is missing", key + " = a number, as in " + kExample);
  return rate;
}

int count(TableReader& keys, const std::string& key, const std::string& name, const std::string& section) {
  const double number = keys.number(key);
  const int whole = static_cast<int>(std::clamp<double>(number, 0, kMaxPerHost));
  if (whole < 1 || whole != number)
    refuse(name, section + key + " expects a whole number from 1 to " + std::to_string(kMaxPerHost), key + " = 8");
  return whole;
}

KnownLink read_link(const toml::table& of, const std::string& link, const std::string& name) {
  const std::string section = "links." + link + ".";
  TableReader keys(of, name, section, "a link");
  KnownLink out{.name = link, .is = needed(keys, "is", name, section), .source = needed(keys, "source", name, section)};
  out.bytes_per_us = kPerGb * needed_rate(keys, "gb_per_s", name, section);
  keys.refuse_others();
  return out;
}

KnownDevice read_device(const toml::table& of, const std::string& device, const DeviceTable& table,
                        const std::string& name) {
  const std::string section = "devices." + device + ".";
  TableReader keys(of, name, section, "a device");
  const auto link_at = [&](const std::string& key) {
    const std::string link = needed(keys, key, name, section);
    if (table.link(link) == nullptr)
      refuse(name, section + key + " names no link: " + link, spec::nearest_name(link, names_of(table.links)));
    return link;
  };
  KnownDevice out{.name = device,
                  .is = needed(keys, "is", name, section),
                  .source = needed(keys, "source", name, section),
                  .memory_bytes = keys.bytes("memory"),
                  .link = link_at("link"),
                  .host_link = link_at("host_link"),
                  .network = link_at("network"),
                  .host_memory_bytes = keys.bytes("host_memory"),
                  .per_host = count(keys, "per_host", name, section),
                  .per_network = count(keys, "per_network", name, section)};
  if (out.memory_bytes == 0) refuse(name, section + "memory is missing", "memory = \"80GB\"");
  if (out.host_memory_bytes == 0) refuse(name, section + "host_memory is missing", "host_memory = \"2TiB\"");
  out.bytes_per_us = kPerGb * needed_rate(keys, "gb_per_s", name, section);
  out.flops_per_us = kPerTera * needed_rate(keys, "tflops", name, section);
  out.flops_16bit_per_us = kPerTera * needed_rate(keys, "tflops_16bit", name, section);
  keys.share("efficiency", out.efficiency);
  keys.refuse_others();
  return out;
}

}  // namespace

const KnownDevice* DeviceTable::device(std::string_view name) const { return find_named(devices, name); }
const KnownLink* DeviceTable::link(std::string_view name) const { return find_named(links, name); }

DeviceTable parse_device_table(std::string_view text, const std::string& name) {
  const toml::table root = parse_table(text, name, kExample);
  TableReader top(root, name, "", "a table of devices");
  const toml::node* version = top.find("herd_devices");
  if (version == nullptr || version->value_exact<int64_t>() != 1)
    refuse(name, "is no table of devices: herd_devices = 1 must stand in it", "herd_devices = 1 as its first line");
  DeviceTable out;
  const auto each = [&](const std::string& key, const auto& read) {
    std::vector<std::pair<toml::source_index, const toml::key*>> order;  // the map sorts by name; the file has its own
    const toml::table& all = table_at(top, key, name);
    for (const auto& [of, node] : all) {
      if (!node.is_table()) refuse(name, key + "." + std::string(of.str()) + " must be a table", kExample);
      order.emplace_back(node.source().begin.line, &of);
    }
    std::ranges::stable_sort(order, {}, [](const auto& one) { return one.first; });
    for (const auto& [line, of] : order) read(*all.get(of->str())->as_table(), std::string(of->str()));
  };
  each("links",
       [&](const toml::table& of, const std::string& link) { out.links.push_back(read_link(of, link, name)); });
  each("devices", [&](const toml::table& of, const std::string& device) {
    out.devices.push_back(read_device(of, device, out, name));
  });
  top.refuse_others();
  return out;
}

draw::Table device_rows(const DeviceTable& table) {
  draw::Table out{{{"device"},
                   {"is"},
                   {"memory", true},
                   {"GB/s", true},
                   {"TFLOP/s fp32", true},
                   {"16 bit", true},
                   {"a host"},
                   {"source"}},
                  {}};
  for (const KnownDevice& one : table.devices) {
    out.rows.push_back({one.name, one.is, number(static_cast<double>(one.memory_bytes) / 1e9) + " GB",
                        number(one.bytes_per_us / kPerGb), number(one.flops_per_us / kPerTera),
                        number(one.flops_16bit_per_us / kPerTera),
                        std::to_string(one.per_host) + ", " + one.link + ", " + one.host_link + ", " + one.network,
                        one.source});
  }
  return out;
}

draw::Table link_rows(const DeviceTable& table) {
  draw::Table out{{{"link"}, {"is"}, {"GB/s each way", true}, {"source"}}, {}};
  for (const KnownLink& one : table.links)
    out.rows.push_back({one.name, one.is, number(one.bytes_per_us / kPerGb), one.source});
  return out;
}

Cluster cluster_of_devices(const DeviceTable& table, std::string_view words) {
  const size_t colon = words.find(':');
  const std::string name(words.substr(0, colon));
  const KnownDevice* device = table.device(name);
  if (device == nullptr)
    refuse("\"" + name + "\"", "is no device that herd knows",
           "did you mean " + spec::nearest_name(name, names_of(table.devices)) + "?");
  const std::string network_name(colon == words.npos ? device->network : words.substr(colon + 1));
  const KnownLink* network = table.link(network_name);
  if (network == nullptr)
    refuse("\"" + network_name + "\"", "is no link that herd knows",
           "did you mean " + spec::nearest_name(network_name, names_of(table.links)) + "?");
  Cluster out;
  out.name = "hosts of " + std::to_string(device->per_host) + " " + device->is + ", " + number(device->efficiency) +
             " of data-sheet peaks";
  Host host;
  host.ranks = device->per_host;
  host.cores = 2 * device->per_host;
  // A copy reads and writes.
  host.core_bytes_per_us = host.cached_core_bytes_per_us = 2 * table.link(device->link)->bytes_per_us;
  host.memory_bytes_per_us = host.cached_bytes_per_us = device->per_host * host.core_bytes_per_us;
  host.signal_us = 2;
  host.step_us = 0.1;
  host.call_us = 8.4;  // what NCCL's tuning model (src/graph/tuning.cc) takes for the start of a collective
  const int networks = (device->per_host + device->per_network - 1) / device->per_network;
  host.uplink = {5, networks * network->bytes_per_us};
  out.topology.name = std::to_string(device->per_host) + " " + device->name + " a host, " + device->link + ", " +
                      std::to_string(networks) + " x " + network->name;
  out.topology.hosts = {host};
  out.host_memory_bytes = device->host_memory_bytes;
  out.device = {.has_own_device = true,
                .memory_bytes = device->memory_bytes,
                .matmul_flops_per_us = device->flops_per_us,
                .matmul_16bit_flops_per_us = device->flops_16bit_per_us,
                .attention_flops_per_us = device->flops_per_us,
                .attention_16bit_flops_per_us = device->flops_16bit_per_us,
                .efficiency = device->efficiency,
                .efficiency_16bit = device->efficiency,
                .bytes_per_us = device->bytes_per_us,
                .host_link_bytes_per_us = table.link(device->host_link)->bytes_per_us,
                .op_overhead_us = 10};
  return out;
}

}  // namespace herd::planner
