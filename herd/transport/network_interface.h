// Lists the network interfaces of this host, and finds the one that reaches another host. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace herd::transport {

struct NetworkInterface {
  std::string name;
  std::string address;     // the first one, numeric
  int64_t mbit_per_s = 0;  // as the driver says; 0 = unknown
  bool loopback = false;
};

// Returns the interfaces that are up and have an address, in the system's order.
std::vector<NetworkInterface> network_interfaces();

// Returns the name of the interface through which this host reaches `host`, a name or an address; "" where none does.
// An address of this host counts as reached through the interface that has it.
std::string interface_towards(const std::string& host);

// Tells whether this host has devices for RDMA: InfiniBand, or the like over Ethernet.
bool has_rdma();

}  // namespace herd::transport
