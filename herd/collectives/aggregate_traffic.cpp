#include "herd/collectives/aggregate_traffic.h"

#include <bit>

namespace herd {

std::vector<AggregateTrafficRow> aggregate_traffic(int num_workers, int64_t bytes, double bytes_per_us) {
  const double n = num_workers, m = static_cast<double>(bytes), time = m / bytes_per_us;
  const double log = std::bit_width(static_cast<unsigned>(num_workers - 1));
  return {{"parameter server", "", "2 N M", 2 * n * m, n * time},
          {"naive", "naive", "N (N-1) M", n * (n - 1) * m, (n - 1) * time},
          {"ring", "ring", "2 (N-1) M", 2 * (n - 1) * m, 2 * (n - 1) / n * time},
          {"tree", "binomial_tree", "2 (N-1) M", 2 * (n - 1) * m, 2 * log * time},
          {"butterfly", "recursive_doubling", "N M log N", n * m * log, log * time}};
}

}  // namespace herd
