// Numeric addresses of a host, and who listens on a port.
#pragma once

#include <string>

#include "herd/launch/store_server.h"

namespace herd::launch {

// "127.0.0.1", of the host. Throws kBadConfig where it has no address.
std::string numeric_host(const StoreAddress& address);
bool is_loopback(const std::string& numeric_host);
bool is_own_address(const std::string& numeric_host);  // tells whether this host can listen there
// "process 123 (herd run -n 2 ...)", or "" where it can't be seen.
std::string port_holder(int port);

}  // namespace herd::launch
