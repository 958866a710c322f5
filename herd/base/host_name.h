// Names this machine. Threads: any.
#pragma once

#include <string>

namespace herd {

// Returns the name that the system gives this host, as `hostname` prints it: "node3".
std::string host_name();

}  // namespace herd
