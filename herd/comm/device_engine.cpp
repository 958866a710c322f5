#include "herd/comm/device_engine.h"

#include <array>
#include <utility>

#include "herd/base/error.h"

namespace herd::comm {
namespace {

constexpr std::array<std::pair<std::string_view, DeviceEngine>, 4> kDeviceEngines = {{{"auto", DeviceEngine::kAuto},
                                                                                      {"staged", DeviceEngine::kStaged},
                                                                                      {"ipc", DeviceEngine::kIpc},
                                                                                      {"nccl", DeviceEngine::kNccl}}};

}  // namespace

std::string_view device_engine_name(DeviceEngine engine) { return kDeviceEngines[static_cast<size_t>(engine)].first; }

DeviceEngine parse_device_engine(std::string_view name) {
  for (const auto& [known, engine] : kDeviceEngines) {
    if (known == name) return engine;
  }
  throw Error(Code::kBadConfig,
              "the device engine is auto, staged, ipc or nccl, but it is \"" + std::string(name) + "\"");
}

}  // namespace herd::comm
