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
  kGone,     // its process or thread has ended, or its connection to this rank has
};

// Holds one piece of memory for each member of a group; the members on a piece's host map it.
class SharedRegion {
 public:
  virtual ~SharedRegion() = default;
  // Returns the memory of a member, by its index in `members`; nullptr where that member is on another host.
  virtual std::byte* of(int member) const = 0;
  virtual int64_t bytes() const = 0;  // size per member
  // Makes pages of a member's memory real that were left for later; does nothing for those that are. Throws kStorage.
  virtual void commit(int /*member*/, int64_t /*begin*/, int64_t /*bytes*/) {}
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Returns the host of a rank, numbered from 0 in the order of their first ranks; all ranks have the same numbers.
  virtual int host_of(Rank) const { return 0; }
  // Counts the ranks on this rank's machine, which share its cores. A machine may hold several hosts (containers): a
  // host's ranks can map each other's memory.
  virtual int ranks_of_machine() const { return size(); }

  // Opening and allocating are collective over `members` (ranks of the transport, the same list everywhere); `key` is
  // used once. Both throw kStorage on every member if one lacks memory; kTimeout or kPeerLost with who did not come.
  virtual std::unique_ptr<Channel> open_channel(const std::string& key, const std::vector<Rank>& members,
                                                SteadyTime deadline) = 0;
  virtual std::shared_ptr<SharedRegion> allocate(const std::string& key, const std::vector<Rank>& members,
                                                 int64_t bytes, SteadyTime deadline) = 0;

  // Tells whether the peer's state is kGone. It costs no system call: it knows of an end once sleep_until() or the
  // network has shown it.
  virtual bool is_gone(Rank peer) = 0;
  virtual PeerState state(Rank peer) = 0;       // asks the system or the network, and so is slower than is_gone()
  virtual std::string describe(Rank peer) = 0;  // returns "pid 4711 is gone" or "pid 4711 is stopped (SIGSTOP)"

  // Writes what this rank does, in a few words, where peers read it even after this rank has died. Threads: any.
  virtual void set_activity(std::string_view activity) = 0;
  // Returns the activity that the peer set last, as far as this rank knows; empty where it has set none.
  virtual std::string activity_of(Rank peer) = 0;

  // A rank sleeps in three steps: it announces the sleep, looks for work once more, then sleeps or cancels.
  // sleep_until() returns when a peer wakes this rank, when a peer ends, or at the deadline. It cancels the
  // announcement.
  virtual void announce_sleep() = 0;
  virtual void cancel_sleep() = 0;
  virtual void sleep_until(SteadyTime deadline) = 0;
  virtual void wake() = 0;  // wakes this rank's own sleeper
  // Lets other threads run on this core while this rank waits and does not sleep yet. `oversubscribed` tells that the
  // host has more ranks than cores: then the thread may move to a core where fewer ranks wait.
  virtual void yield_core(bool /*oversubscribed*/) { std::this_thread::yield(); }

  // Returns true where this rank must answer peers on other hosts, and finish sending, while it has no operation in
  // flight. Then a progress thread calls progress_network() and wait_for_network() in turn.
  virtual bool needs_progress_thread() const { return false; }
  virtual void progress_network() {}  // answers and sends what it can; REQUIRES that no other thread makes progress
  virtual void wait_for_network() {}  // returns when progress_network() can do something, or after interrupt_wait()
  virtual void interrupt_wait() {}    // ends the present wait_for_network(), or else the next one; Threads: any
};

}  // namespace herd::transport
