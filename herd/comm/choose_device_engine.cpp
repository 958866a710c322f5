#include "herd/comm/choose_device_engine.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/context.h"
#include "herd/comm/shared_arenas.h"

namespace herd::comm {
namespace {

std::span<const uint8_t> bytes_of(const void* at, size_t bytes) { return {static_cast<const uint8_t*>(at), bytes}; }

// Returns what each rank says. Collective.
std::vector<std::array<char, 512>> gather_texts(Communicator& comm, const std::string& text) {
  std::array<char, 512> mine{};
  std::copy_n(text.data(), std::min(text.size(), mine.size() - 1), mine.data());
  std::vector<std::array<char, 512>> all(static_cast<size_t>(comm.size()));
  std::span<uint8_t> whole(reinterpret_cast<uint8_t*>(all.data()), all.size() * sizeof mine);
  comm.all_gather(bytes_of(mine.data(), sizeof mine), whole, {.name = "device engine"});
  return all;
}

// Opens the arenas of all ranks. Returns why not, the same on all; empty where they are open. Collective.
std::string open_arenas(Communicator& comm, GroupState& group, Device device,
                        int64_t half_bytes = SharedArenas::kHalfBytes) {
  if (!group.hosts().empty()) return "the ranks are on several hosts";
  const auto arenas =
      std::make_shared<SharedArenas>(device, comm.rank(), comm.size(), group.engine().shared_transport(), half_bytes);
  std::vector<SharedArenas::Offer> offers(static_cast<size_t>(comm.size()));
  std::span<uint8_t> all(reinterpret_cast<uint8_t*>(offers.data()), offers.size() * sizeof(SharedArenas::Offer));
  comm.all_gather(bytes_of(&arenas->offer(), sizeof(SharedArenas::Offer)), all, {.name = "device arenas"});
  const auto refusals = gather_texts(comm, arenas->open(offers));
  for (const auto& refusal : refusals) {
    if (refusal[0] != 0) return refusal.data();
  }
  group.set_arenas(arenas);
  return "";
}

}  // namespace

DeviceEngineChoice choose_device_engine(Communicator& comm, GroupState& group, Device device, DeviceEngine asked) {
  group.set_arenas(nullptr);
  if (asked == DeviceEngine::kStaged) return {asked, "it was asked for"};
  std::string why_not;
  if (asked == DeviceEngine::kAuto || asked == DeviceEngine::kNccl) {
    why_not = "NCCL is not built in";
    if (asked == DeviceEngine::kNccl) throw Error(Code::kBadConfig, "the device engine nccl: " + why_not);
  }
  const std::string refusal = open_arenas(comm, group, device);
  if (refusal.empty()) {
    return {DeviceEngine::kIpc,
            asked == DeviceEngine::kIpc ? "it was asked for" : "the ranks are on one host; no nccl: " + why_not};
  }
  if (asked == DeviceEngine::kIpc) {
    throw Error(Code::kBadConfig, "the device engine ipc: " + refusal + "\n  fix: comm.device_engine = \"staged\"");
  }
  return {DeviceEngine::kStaged, "no nccl: " + why_not + "; no ipc: " + refusal};
}

void use_small_arenas(Communicator& comm, Device device, int64_t half_bytes) {
  const std::string refusal = open_arenas(comm, CommunicatorTestAccess::group(comm), device, half_bytes);
  if (!refusal.empty()) throw Error(Code::kBadConfig, refusal);
}

}  // namespace herd::comm
