// The network interfaces of this host, and which of them reaches another one.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace herd::transport {

struct NetworkInterface {
  std::string name;
  std::string address;     // numeric, the first one
  int64_t mbit_per_s = 0;  // as the driver says; 0 = unknown
  bool loopback = false;
};

// Those that are up and have an address, in the system's order.
std::vector<NetworkInterface> network_interfaces();

// The name of the interface through which this host reaches `host` (a name or an address; one of its own counts as
// reached through the interface that has it). "" where none does.
std::string interface_towards(const std::string& host);

// Whether this host has devices for RDMA: InfiniBand, or the like over Ethernet.
bool has_rdma();

}  // namespace herd::transport
