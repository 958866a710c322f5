// Decides which ranks share a host, so that they can share memory, and which hosts a machine, so that they share its
// cores.
#pragma once

#include <string>
#include <vector>

namespace herd::transport {

// The same for two processes exactly if they can map each other's memory: one kernel, one network namespace (whose
// abstract sockets descriptors travel over), one user.
std::string host_identity();

// The same for two processes on one kernel, in whatever containers; empty where the kernel does not say.
std::string machine_identity();

// By rank: the number of its host, from 0 in the order of their first ranks.
std::vector<int> number_hosts(const std::vector<std::string>& identities);

}  // namespace herd::transport
