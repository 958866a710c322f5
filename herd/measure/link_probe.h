// Measures how long messages take between two hosts, timed by one rank of each (comm/world_probes.h says which):
//   short    the lower quartile of round trips of 8 bytes, halved
//   message  the lower quartile of several bursts: both ends send as few short ones as make their cores, not the
//            latency, take the time, and then receive as many. In longer bursts they would pass several at once
//            (of several moments the least short and the greatest message: at some both ends may be on one core)
//   long     messages that double from 128 KiB until one takes 4 ms (or has 4 MiB): its second half, since the
//            first may pass a limited link in a burst
//   burst    after 3 ms with little on the link as many short messages as it passes in 4 ms (a MiB at most): what came
//            ahead of its rate, the greater of two; and how fast such messages pass then, alone
//   both     such a message as both ends send one, until both have it: the lower quartile of 2 to 7, after a first
// About 30 ms, where a rank has a core. Threads: one an end.
#pragma once

#include <cstddef>
#include <span>

#include "herd/topology/topology.h"

namespace herd::measure {

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

// One end calls time_link(), the other answer_probe() at the same time. time_link() returns the link, not rounded. Both
// throw what the wire throws.
Link time_link(ProbeWire& wire);
void answer_probe(ProbeWire& wire);

}  // namespace herd::measure
