// A Transport lets ranks reach each other: who is there, who is alive, how to sleep until something happens, and the
// channels and shared regions that groups open on it. Implementations: shm (processes of a host), inproc (threads of a
// process), and over several hosts by UCX, each host within itself by shm.
// Threads: one sleeper at a time; wake(), state() and the collective calls from any.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "herd/base/ids.h"
#include "herd/base/store.h"
#include "herd/transport/channel.h"

namespace herd::transport {

enum class PeerState : uint8_t {
  kAlive,
  kStopped,  // alive, but the system does not run it (SIGSTOP, a debugger)
  kGone,
};

// A piece of memory per member of a group, mapped by all members on its host.
class SharedRegion {
 public:
  virtual ~SharedRegion() = default;
  virtual std::byte* of(int member) const = 0;  // index in `members`; nullptr: on another host
  virtual int64_t bytes() const = 0;            // per member
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // The host of a rank, numbered from 0 in the order of their first ranks; the same on all ranks.
  virtual int host_of(Rank) const { return 0; }
  // How many ranks run on this rank's machine, which may be several hosts (containers): they share its cores.
  virtual int ranks_of_machine() const { return size(); }

  // Collective over `members` (ranks of the transport, the same list everywhere); `key` is used once.
  // Throw kStorage on every member if one lacks memory, kTimeout or kPeerLost naming who did not come.
  virtual std::unique_ptr<Channel> open_channel(const std::string& key, const std::vector<Rank>& members,
                                                SteadyTime deadline) = 0;
  virtual std::shared_ptr<SharedRegion> allocate(const std::string& key, const std::vector<Rank>& members,
                                                 int64_t bytes, SteadyTime deadline) = 0;

  virtual bool gone(Rank peer) = 0;  // cheap; learned while asleep
  virtual PeerState state(Rank peer) = 0;
  virtual std::string describe(Rank peer) = 0;  // "pid 4711 is gone", "pid 4711 is stopped (SIGSTOP)"

  // What this rank does, in a few words that peers find even after it has died. Any thread.
  virtual void show(std::string_view activity) = 0;
  // What the peer showed last, as far as it is known here: empty where it showed nothing.
  virtual std::string shown(Rank peer) = 0;

  // Sleep in three steps: announce, look for work once more, then sleep (or cancel).
  virtual void announce_sleep() = 0;
  virtual void cancel_sleep() = 0;
  virtual void sleep_until(
      SteadyTime deadline) = 0;  // until rung, a peer goes, or the deadline; cancels the announcement
  virtual void wake() = 0;       // this rank's own sleeper
  // For a rank that waits but does not sleep yet: lets whoever shares its core have a turn.
  virtual void offer_core(bool /*oversubscribed*/) { std::this_thread::yield(); }

  // Where peers on other hosts need this rank's help even while it has nothing in flight (its answers, the rest of what
  // it sends), somebody must look after the transport: care(), then rest() until there is something to care for.
  virtual bool needs_care() const { return false; }
  virtual void care() {}      // not while another thread leads
  virtual void rest() {}      // returns when there is something, or at once after end_rest()
  virtual void end_rest() {}  // from any thread
};

}  // namespace herd::transport
