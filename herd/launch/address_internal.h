// Numeric addresses of a host, and who listens on a port.
#pragma once

#include <string>

#include "herd/launch/store_server.h"

namespace herd::launch {

// "tcp://127.0.0.1:1234". Throws kBadConfig where the host has no address.
std::string tcp_endpoint(const StoreAddress& address);
// "process 123 (herd run -n 2 ...)", or "" where it can't be seen.
std::string port_holder(int port);

}  // namespace herd::launch
