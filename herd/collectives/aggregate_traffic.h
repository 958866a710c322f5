// Counts the traffic of all workers together, as lectures on training systems do. It gives what N workers send in total
// to all-reduce a message of M bytes, and its time where each worker sends and receives B bytes a second.
//   parameter server  2NM       time MN/B (the server's link)
//   naive             N(N-1)M   M(N-1)/B    (lectures round to N^2 M)
//   ring              2(N-1)M   2M(N-1)/(NB)
//   tree              2(N-1)M   2M log N/B
//   butterfly         NM log N  M log N/B    (recursive doubling)
// Logarithms are rounded up.   Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace herd {

struct AggregateTrafficRow {
  std::string_view pattern;         // "ring"
  std::string_view algorithm;       // the all_reduce algorithm that follows the pattern; "" = none
  std::string_view total_equation;  // the equation of total_bytes
  double total_bytes = 0;
  double us = 0;
};

// Returns a row for each pattern; `bytes` is M, `bytes_per_us` is B. REQUIRES num_workers >= 1.
std::vector<AggregateTrafficRow> aggregate_traffic(int num_workers, int64_t bytes, double bytes_per_us);

}  // namespace herd
