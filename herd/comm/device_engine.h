// Names the ways in which operations on device memory move their bytes. Threads: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace herd::comm {

enum class DeviceEngine : uint8_t {
  kAuto,
  kStaged,  // copies in page-locked memory of the host, on any fabric (host_copies.h)
  kIpc,     // memory of the devices that the ranks of one host open to each other (shared_arenas.h)
  kNccl,    // NCCL, loaded when it is asked for (nccl_group.h)
};

std::string_view device_engine_name(DeviceEngine engine);
DeviceEngine parse_device_engine(std::string_view name);  // throws kBadConfig with the names there are

struct DeviceEngineChoice {
  DeviceEngine engine = DeviceEngine::kStaged;
  std::string reason;  // why this one, and why not those before it
};

}  // namespace herd::comm
