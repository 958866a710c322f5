// Measures how long messages take between two hosts, timed by one rank of each (comm/world_probes.h says which):
//   short    is half of a round trip of 8 bytes, the lower quartile of many.
//   message  is what a core spends on a short message, the lower quartile of several bursts. Both ends send a burst
//            and then receive one, just long enough that their cores and not the latency take the time.
//            Both are timed at several moments, since at some both ends may be on one core: the shortest `short` and
//            the greatest `message` count.
//   long     is the rate of messages that double from 128 KiB until one takes 4 ms or has 4 MiB. Only its second half
//            counts, since the first may pass a limited link in a burst.
//   burst    is what passes ahead of that rate. After 3 ms with little on the link, as many short messages are sent as
//            it passes in 4 ms, a MiB at most. The greater of two counts, and the rate at which such messages pass.
//   both     is the time until both ends have a long message that each sends to the other: the lower quartile of 2 to
//            7, the first left out.
// All of it takes about 30 ms where each rank has a core. Threads: one an end.
#pragma once

#include <cstddef>
#include <span>

#include "herd/topology/topology.h"

namespace herd::measure {

// Defines what a probe needs of the way to the other end.
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
