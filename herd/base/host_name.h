// Defines what this machine is called. Threads: any.
#pragma once

#include <string>

namespace herd {

std::string host_name();

}  // namespace herd
