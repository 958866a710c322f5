// Draws how a link overlaps with passes, in one steady step of a small chain.
//   Sums of gradients run first come, first served (wait-free back-propagation), by priority, or as an ideal in which
//   passes and sums never wait for each other. A layer's forward takes a unit of time, its backward two, and the sum of
//   its gradient as many as stated, cut into partitions of one unit; the loss and updates take none.
//   Copies of weights that wait on the host come into a window of two buffers, a copy as many units as stated: with
//   each micro-batch by itself ("window"), all of them through a layer before the next ("layer_major"), and so with the
//   first and the last layer read on the host ("direct_host"), with no copy beside a pass ("serial"), or with weights
//   in files, which read and write those of a layer in as many units ("files"). There layer 0 is an embedding, whose
//   backward needs no weights, and of which a direct read takes a unit; copies of gradients take none. The steps are
//   those of the rewrites (data_parallel.h, priority.h, weight_window.h, layer_major.h, direct_host.h,
//   values_in_files.h),
//   simulated until they repeat.
// Threads: pure.
#pragma once

#include <string>

#include "herd/sim/timeline.h"

namespace herd::strategies {

struct OverlapOptions {
  std::string schedule = "fifo";  // fifo, priority or ideal; serial, window, layer_major, direct_host or files
  int layers = 3;
  int units = 3;          // that the sum of a layer's gradient takes, or the copy of its weights
  int credit = 2;         // of priority, in units
  int micro_batches = 2;  // of copies of weights
};

struct Overlap {
  int step_units = 0;      // from step to step
  sim::Timeline timeline;  // rows for passes, the link and files. What outlasts the step has times beyond step_units.
};

// Throws kBadConfig for another schedule or numbers that are too small or too large.
Overlap overlap_of(const OverlapOptions& options);

// Draws it for a terminal, a column for each unit: "compute  F0 F1 F2 B2 == ..". What outlasts the step stands at its
// beginning, where it overlaps the next one. The last line says how long ranks wait.
std::string overlap_picture(const OverlapOptions& options);

}  // namespace herd::strategies
