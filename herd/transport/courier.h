// Defines how the ranks of one host find each other before they share memory. They send small parcels of text, shared
// memory and descriptors, and learn who is alive. No data of collectives goes through it.
// Threads: every method from any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "herd/base/ids.h"
#include "herd/base/store.h"
#include "herd/memory/shared_memory.h"
#include "herd/transport/transport.h"

namespace herd::transport {

struct Parcel {
  std::string text = {};                      // at most 8 KiB
  std::shared_ptr<SharedMemory> memory = {};  // both ranks map it afterwards
  int descriptor = -1;                        // the receiver owns its own copy
};

class Courier {
 public:
  virtual ~Courier() = default;
  virtual std::string_view name() const = 0;  // returns the name of the transport: "shm", "inproc"
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Parcels between two ranks meet by key, in any order.
  virtual void send(Rank to, const std::string& key, const Parcel& parcel) = 0;
  // Throws kTimeout or kPeerLost with the rank.
  virtual Parcel receive(Rank from, const std::string& key, SteadyTime deadline) = 0;
  virtual PeerState state(Rank peer) = 0;       // as Transport::state()
  virtual std::string describe(Rank peer) = 0;  // as Transport::describe()
  // Returns a descriptor on which epoll reports one of exit_events() once the peer is gone; -1 where a peer that exits
  // rings this rank's doorbell itself (threads).
  virtual int exit_descriptor(Rank peer) = 0;
  virtual uint32_t exit_events(Rank peer) = 0;
};

}  // namespace herd::transport
