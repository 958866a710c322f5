// Reads the devices and links that herd brings along: share/herd/devices/devices.toml beside the command.
#pragma once

#include "herd/planner/device_table.h"

namespace herd::cli {

planner::DeviceTable known_devices();  // throws kStorage where the file is not there

}  // namespace herd::cli
