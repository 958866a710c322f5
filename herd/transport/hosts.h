// Decides which ranks share a host, so that they can share memory, and which hosts share a machine and so its cores.
// Threads: any.
#pragma once

#include <string>
#include <vector>

namespace herd::transport {

// Returns a text that two processes have in common exactly if they can map each other's memory. Such processes share a
// kernel, a user and a network namespace, whose abstract sockets pass descriptors.
std::string host_identity();

// Returns a text that two processes on one kernel have in common, in whatever containers; empty where the kernel does
// not say.
std::string machine_identity();

// Returns the number of each rank's host; hosts count from 0 in the order of their first ranks.
std::vector<int> number_hosts(const std::vector<std::string>& identities);

}  // namespace herd::transport
