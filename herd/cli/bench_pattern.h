// Defines what a bench puts into its inputs, and what it must find in its outputs. The values of one element over all
// ranks are small whole numbers, whose sums every dtype holds exactly. So every order of adding gives the same bits.
// An average is such a sum times 1/ranks, rounded once. For products the values are 1 and 2. Values repeat with a prime
// period: data at a wrong place differs from what belongs there. What is measured beside an operation moves the same
// values, since processors move zeros faster than anything else. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/base/ids.h"
#include "herd/base/reduce_op.h"

namespace herd::cli {

class BenchPattern {
 public:
  // REQUIRES supports(op, dtype), and num_ranks <= max_ranks(op, dtype).
  BenchPattern(DType dtype, ReduceOp op, int num_ranks);

  // Returns the most ranks for which results are exact. A sum of 3 for each rank has to be exact, of 6 for a
  // premultiplied one: 85 and 42 for bf16, 42 and 21 for int8. A product of 2 for each rank: 6 for int8, 127 for fp32.
  // Wider types have no limit.
  static int max_ranks(ReduceOp op, DType dtype);
  // Returns what `rank` multiplies its input by: 1 or 2 for premultiplied_sum, else 1.
  static double factor(ReduceOp op, Rank rank);

  // Writes the inputs of `rank` for elements [first, first + count) of the message.
  void fill(std::byte* to, int64_t first, int64_t count, Rank rank, int repetition) const;
  // Count the elements that differ from rank `rank`'s inputs, or from all ranks' inputs reduced.
  int64_t wrong_input(const std::byte* at, int64_t first, int64_t count, Rank rank, int repetition) const;
  int64_t wrong_result(const std::byte* at, int64_t first, int64_t count, int repetition);

 private:
  int64_t differing(const std::byte* at, const std::vector<std::byte>& block, int64_t start, int64_t count) const;

  DType dtype_;
  ReduceOp op_;
  int num_ranks_;
  std::vector<std::byte> inputs_, results_;  // two periods more than one stretch
  int results_of_ = -1;                      // the repetition that results_ is for
};

}  // namespace herd::cli
