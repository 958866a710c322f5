// Holds devices and links by their makers' data sheets, and makes clusters of them. The file is
// share/herd/devices/devices.toml; grammar: docs/formats/devices.md.   Threads: plain data and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "herd/draw/table.h"
#include "herd/planner/cluster.h"

namespace herd::planner {

struct KnownLink {
  std::string name;         // "nvlink4"
  std::string is;           // for people
  std::string source;       // of its rate
  double bytes_per_us = 0;  // each way, of one device
};

struct KnownDevice {
  std::string name, is, source;
  int64_t memory_bytes = 0;
  double bytes_per_us = 0;                          // of its memory, read plus written
  double flops_per_us = 0, flops_16bit_per_us = 0;  // peaks of dense products
  double efficiency = 1;                            // share of these peaks that steps keep up
  std::string link, host_link, network;             // to devices of its host, to its host, to other hosts
  int64_t host_memory_bytes = 0;                    // of a host
  int per_host = 1;                                 // devices of a host
  int per_network = 1;                              // devices that share a network link
};

struct DeviceTable {
  std::vector<KnownDevice> devices;  // in the order of the file
  std::vector<KnownLink> links;
  const KnownDevice* device(std::string_view name) const;  // null where there is none
  const KnownLink* link(std::string_view name) const;
};

// Throws kBadConfig with the key, the rule and the nearest valid name.
DeviceTable parse_device_table(std::string_view text, const std::string& name);

// Return the table for people, with sources.
draw::Table device_rows(const DeviceTable& table);
draw::Table link_rows(const DeviceTable& table);

// Returns one host of the devices that `words` name, "h200", or "h200:100gbit" for another network than the table's;
// with_ranks() adds more hosts. Throws kBadConfig with the nearest name.
Cluster cluster_of_devices(const DeviceTable& table, std::string_view words);

}  // namespace herd::planner
