// A Transport lets ranks reach each other. It knows who is there and who is alive, lets a rank sleep until something
// happens, and opens channels and shared regions for groups. Implementations: shm (processes of a host), inproc
// (threads of a process), and ClusterTransport, which joins hosts by TCP or UCX and uses shm within each.
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

// Holds a piece of memory per member of a group, mapped by all members on its host.
class SharedRegion {
 public:
  virtual ~SharedRegion() = default;
  virtual std::byte* of(int member) const = 0;  // `member` is an index in `members`; nullptr: it is on another host
  virtual int64_t bytes() const = 0;            // size per member
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Returns the host of a rank, numbered from 0 in the order of their first ranks; all ranks have the same numbers.
  virtual int host_of(Rank) const { return 0; }
  // Counts the ranks on this rank's machine, which may be several hosts (containers): they share its cores.
  virtual int ranks_of_machine() const { return size(); }

  // Opening and allocating are collective over `members` (ranks of the transport, the same list everywhere); `key` is
  // used once. Both throw kStorage on every member if one lacks memory; kTimeout or kPeerLost with who did not come.
  virtual std::unique_ptr<Channel> open_channel(const std::string& key, const std::vector<Rank>& members,
                                                SteadyTime deadline) = 0;
  virtual std::shared_ptr<SharedRegion> allocate(const std::string& key, const std::vector<Rank>& members,
                                                 int64_t bytes, SteadyTime deadline) = 0;

  virtual bool gone(Rank peer) = 0;  // is cheap; learns of ends while it sleeps
  virtual PeerState state(Rank peer) = 0;
  virtual std::string describe(Rank peer) = 0;  // returns "pid 4711 is gone" or "pid 4711 is stopped (SIGSTOP)"

  // Shows what this rank does in a few words, which peers find even after it has died. Threads: any.
  virtual void show(std::string_view activity) = 0;
  // Returns what the peer showed last, as far as this rank knows; empty where it showed nothing.
  virtual std::string shown(Rank peer) = 0;

  // A rank sleeps in three steps: it announces, looks for work once more, then sleeps or cancels. sleep_until() returns
  // at a ring, a peer's end or the deadline, and cancels the announcement.
  virtual void announce_sleep() = 0;
  virtual void cancel_sleep() = 0;
  virtual void sleep_until(SteadyTime deadline) = 0;
  virtual void wake() = 0;  // wakes this rank's own sleeper
  // Gives ranks that share the core a turn while this rank waits and does not sleep yet.
  virtual void offer_core(bool /*oversubscribed*/) { std::this_thread::yield(); }

  // Where needs_care(), peers on other hosts need this rank while it has nothing in flight: its answers, and the rest
  // of what it sends. One thread then calls care(), and rest() until there is something to care for.
  virtual bool needs_care() const { return false; }
  virtual void care() {}      // REQUIRES that no other thread leads
  virtual void rest() {}      // returns when there is something to do, or at once after end_rest()
  virtual void end_rest() {}  // Threads: any
};

}  // namespace herd::transport
