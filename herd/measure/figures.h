// Turns measured times into the figures of a topology that algorithms are chosen on. Figures are rounded so coarsely
// that two runs on the same machines agree: choices, and so bits, must not follow noise. Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/topology/topology.h"

namespace herd::measure {

// Returns the nearest (by ratio) of 1, 1.25, 1.6, 2, 2.5, 3.15, 4, 5, 6.3, 8 times a power of ten (ISO 3, R 10). It is
// at most 13 % off; 0 for what is not above 0.
double rounded(double value);

// Holds how long messages between two ranks took, in microseconds.
struct LinkProbe {
  double short_us = 0;    // a message of few bytes, one way
  double message_us = 0;  // each of many short ones that pass both ways at once, on either end's core
  double long_us = 0;     // a message of long_bytes, one way
  double both_us = 0;     // the same while another comes the other way; 0 = not measured
  int64_t long_bytes = 0;
};
// Both ways at once take one way's time where the link is the limit, and up to twice that where cores are. From a
// quarter more on, core_bytes_per_us = 2 long_bytes / (both_us - short_us). Throws kBadConfig unless long_us >
// short_us.
Link link_of(const LinkProbe& probe);
Link slower(const Link& a, const Link& b);  // takes the greater times, the lesser rates and bursts
Link rounded(const Link& link);             // rounds each of its figures

// Holds when each piece of `bytes` of a stream had arrived, since its first byte could.
struct StreamProbe {
  int64_t piece_bytes = 0;
  std::vector<double> us = {};
};
// Returns the link with the burst that the stream passed. The burst is what was ahead of the link's rate at most, where
// it came at twice that rate or more. A receiver that is interrupted finds less of it, never more.
Link with_burst(Link link, const StreamProbe& stream);

// Returns how long the second half of a message took that took whole_us and was received in two halves. It is at least
// half of the whole, since an interrupted receiver finds the second half there already.
double second_half_us(double whole_us, double second_us);

// Holds how long copies of `bytes` took one rank of a host alone, and each of several at once; microseconds, all above
// 0.
struct MemoryProbe {
  int ranks = 0;
  int64_t bytes = 0;
  double alone_us = 0, all_us = 0;                        // in the cache
  double alone_past_cache_us = 0, all_past_cache_us = 0;  // past it, and back from memory
};
// Returns the host with its rates as measured; other figures stay. Rates are rounded to 1 or 3.15 times a power of ten,
// more coarsely than links, since the cores of a virtual machine move.
Host with_memory(Host host, const MemoryProbe& probe);

}  // namespace herd::measure
