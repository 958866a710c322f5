// How long messages take between hosts, measured when a world is made: the first ranks of hosts 2k and 2k + 1 time a
// few of each other's, all such pairs at once; where hosts are odd in number, the last one then asks its neighbour.
//   short    the lower quartile of round trips of 8 bytes, halved
//   message  the lower quartile of several bursts: both ends send as few short ones as make their cores, not the
//            latency, take the time, and then receive as many. In longer bursts they would pass several at once
//            (of several moments the least short and the greatest message: at some both ends may be on one core)
//   long     messages that double from 128 KiB until one takes 4 ms (or has 4 MiB): its second half, since the
//            first may pass a limited link in a burst
//   burst    after 3 ms with little on the link as many short messages as it passes in 4 ms (a MiB at most): what came
//            ahead of its rate, the greater of two; and how fast such messages pass then, alone
//   both     such a message as both ends send one, until both have it: the lower quartile of 2 to 7, after a first
// About 30 ms, where a rank has a core. Threads: the world's calling thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "herd/comm/group_state.h"
#include "herd/topology/probe.h"

namespace herd::comm {

// What a probe needs of the way to the other end.
class ProbeWire {
 public:
  virtual ~ProbeWire() = default;
  virtual void send(std::span<std::byte> bytes) = 0;
  virtual void receive(std::span<std::byte> bytes) = 0;
  // Sends and receives as much, both ends at once.
  virtual void exchange(std::span<std::byte> out, std::span<std::byte> in) = 0;
  virtual double now_us() = 0;
};

// The two ends.
Link ask(ProbeWire& wire);
void answer(ProbeWire& wire);

// Collective over the world, before its other operations. On rank 0 the slowest of all links, not
// rounded; nothing on other ranks, and where there is one host. Throws the group's error.
std::optional<Link> probe_links(GroupState& world);

}  // namespace herd::comm
