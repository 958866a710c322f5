// Runs the collectives of a group inside one host on its devices' memory alone. Each rank has an arena that its peers
// open once, and a stream. An operation copies what others need into the rank's arena, lets its stream wait for the
// peers' events, reduces and copies out of their arenas. The schedules among the ranks are barriers of the host: they
// say that an event has been recorded, not that it is reached, so no kernel ever spins and hosts run ahead.
//   all_reduce      up to kOneStep: everybody reduces everything; above: each its slice, then all fetch the others'
//   reduce_scatter  each reduces its part;  reduce: root reduces;  others: copies from the owners' arenas
// Sums run in the order of the ranks, so all get the same bits. What does not fit an arena's half goes in windows.
//   An arena has two halves, which operations use in turn: when a rank fills one again, all peers have told, before the
// barrier of the operation between, when they are done reading.
// Threads: one at a time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "herd/base/device_driver.h"
#include "herd/base/reduce_op.h"
#include "herd/comm/device_collectives.h"
#include "herd/schedule/message_layout.h"
#include "herd/transport/transport.h"

namespace herd::comm {

class SharedArenas final : public DeviceCollectives, public std::enable_shared_from_this<SharedArenas> {
 public:
  static constexpr int64_t kHalfBytes = int64_t{32} << 20;
  static constexpr int64_t kOneStep = 512 << 10;
  static constexpr int kMaxRanks = 64;

  // What a rank tells its peers. Plain bytes, which an all_gather moves.
  struct Offer {
    std::array<DeviceHandle, 7> handles = {};  // memory, then events: filled, reduced, read of each half
    std::array<char, 400> refusal = {};        // why it has no arena; empty where it has
  };

  // Makes this rank's arena, or notes in its offer why it has none.
  SharedArenas(Device device, Rank rank, int num_ranks, std::shared_ptr<transport::Transport> transport,
               int64_t half_bytes = kHalfBytes);
  ~SharedArenas() override;
  const Offer& offer() const { return offer_; }
  // Opens the arenas of the peers. Returns why it can't; empty where it can.
  std::string open(std::span<const Offer> offers);
  Device device() const override { return device_; }
  std::string_view name() const override { return "ipc"; }
  bool supports(Collective, DType, ReduceOp, bool) const override { return true; }

  std::vector<std::shared_ptr<DeviceSteps>> steps_of(DeviceCollective collective) override;
  void drain() override;
  void leave_open() override { leaves_open_ = true; }  // the arena stays for the life of the process

 private:
  struct Peer {
    std::byte* arena = nullptr;
    std::array<std::unique_ptr<SharedDeviceEvent>, 6> events;
  };
  class Run;
  class Barrier;
  enum Event { kFilled = 0, kReduced = 2, kRead = 4 };  // + half

  DeviceDriver& driver_;
  Device device_;
  Rank rank_;
  int num_ranks_;
  std::shared_ptr<transport::Transport> transport_;
  int64_t half_bytes_;
  StreamHandle stream_ = nullptr;
  std::vector<Peer> peers_;  // by rank; this rank's own arena and events, too
  Offer offer_;
  uint64_t windows_ = 0;  // issued so far
  bool leaves_open_ = false;
};

}  // namespace herd::comm
