#include "herd/comm/choose_device_engine.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/context.h"
#include "herd/comm/nccl_group.h"
#include "herd/comm/nccl_library.h"
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
  group.set_device_collectives(arenas);
  return "";
}

// Makes the group's communicator of NCCL. Returns why not, the same on all; empty where it is there. Collective.
std::string open_nccl(Communicator& comm, GroupState& group, Device device) {
  if (device.kind != DeviceKind::kCuda) return "the device is not a GPU of NVIDIA";
  std::string why_not;
  const NcclLibrary* library = nccl_library(&why_not);
  std::string id;
  if (library != nullptr) id = device_driver(device.kind).facts(device.index).id;
  // Each rank says why it has no NCCL, or which GPU it has.
  const auto said = gather_texts(comm, library == nullptr ? "!" + why_not : id);
  for (Rank rank = 0; rank < comm.size(); ++rank) {
    const std::string text = said[static_cast<size_t>(rank)].data();
    if (text[0] == '!') return "rank " + std::to_string(rank) + ": " + text.substr(1);
    for (Rank other = 0; other < rank; ++other) {
      if (text != said[static_cast<size_t>(other)].data()) continue;
      return "ranks " + std::to_string(other) + " and " + std::to_string(rank) + " share a GPU, which NCCL " +
             (library == nullptr ? "" : nccl_version_text(library->version)) + " refuses";
    }
  }
  std::array<uint8_t, sizeof(NcclUniqueId) + 1> made{};
  std::string refusal;
  if (comm.rank() == 0) {
    try {
      const NcclUniqueId unique = NcclGroup::make_id();
      std::copy_n(reinterpret_cast<const uint8_t*>(unique.bytes), sizeof unique.bytes, made.begin());
      made.back() = 1;
    } catch (const Error& error) {
      refusal = error.message();
    }
  }
  comm.broadcast(made, 0, {.name = "device nccl"});
  if (made.back() == 0) return "rank 0 has no id of a communicator: " + refusal;
  NcclUniqueId unique{};
  std::copy_n(made.begin(), sizeof unique.bytes, reinterpret_cast<uint8_t*>(unique.bytes));
  const auto nccl = std::make_shared<NcclGroup>(device, comm.rank(), comm.size(), group.engine().shared_transport());
  const auto deadline = std::chrono::steady_clock::now() + group.settings().deadline / 2;
  const auto refusals = gather_texts(comm, nccl->join(unique, deadline));
  for (Rank rank = 0; rank < comm.size(); ++rank) {
    if (refusals[static_cast<size_t>(rank)][0] != 0)
      return "rank " + std::to_string(rank) + ": " + refusals[static_cast<size_t>(rank)].data();
  }
  group.set_device_collectives(nccl);
  return "";
}

}  // namespace

DeviceEngineChoice choose_device_engine(Communicator& comm, GroupState& group, Device device, DeviceEngine asked) {
  group.set_device_collectives(nullptr);
  if (asked == DeviceEngine::kStaged) return {asked, "it was asked for"};
  std::string reason;
  for (const DeviceEngine engine : {DeviceEngine::kNccl, DeviceEngine::kIpc}) {
    if (asked != DeviceEngine::kAuto && asked != engine) continue;
    const std::string refusal =
        engine == DeviceEngine::kNccl ? open_nccl(comm, group, device) : open_arenas(comm, group, device);
    const std::string name(device_engine_name(engine));
    if (refusal.empty()) return {engine, asked == engine ? "it was asked for" : reason + "it can be had"};
    if (asked == engine) {
      throw Error(Code::kBadConfig,
                  "the device engine " + name + ": " + refusal + "\n  fix: take \"staged\", or \"auto\"");
    }
    reason += "no " + name + ": " + refusal + "; ";
  }
  return {DeviceEngine::kStaged, reason + "copies pass the host"};
}

void use_small_arenas(Communicator& comm, Device device, int64_t half_bytes) {
  const std::string refusal = open_arenas(comm, CommunicatorTestAccess::group(comm), device, half_bytes);
  if (!refusal.empty()) throw Error(Code::kBadConfig, refusal);
}

}  // namespace herd::comm
