// Draws how reductions of gradients overlap with passes, in one steady step of a small chain: first come, first served
// (wait-free back-propagation), by priority, and the ideal in which neither waits for the other.
//   A layer's forward takes a unit of time, its backward two, and the sum of its gradient as many as stated, cut into
//   partitions of one unit; the loss and updates take none. The steps are those of the rewrites (data_parallel.h,
//   priority.h), simulated until they repeat.
// Threads: pure.
#pragma once

#include <string>

#include "herd/sim/timeline.h"

namespace herd::strategies {

struct OverlapOptions {
  std::string schedule = "fifo";  // fifo, priority or ideal
  int layers = 3;
  int units = 3;   // that the sum of a layer's gradient takes
  int credit = 2;  // of priority, in units
};

struct Overlap {
  int step_units = 0;  // from step to step
  sim::Timeline
      timeline;  // a row for passes, and one for the link. What outlasts the step has times beyond step_units.
};

// Throws kBadConfig for another schedule or numbers that are too small or too large.
Overlap overlap_of(const OverlapOptions& options);

// Draws it for a terminal, a column for each unit: "compute  F0 F1 F2 B2 == ..". What outlasts the step stands at its
// beginning, where it overlaps the next one. The last line says how long ranks wait.
std::string overlap_picture(const OverlapOptions& options);

}  // namespace herd::strategies
