// What a bench puts into its inputs, and what it must find in its outputs. The values of one element over all ranks are
// small whole numbers with sums that every dtype holds exactly, so the result is the same bits in any order of adding.
// The values repeat with a prime period: data that lands at a wrong place is not what belongs there. What is measured
// beside an operation moves the same: processors move zeros faster than anything else.
// Threads: one at a time.
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
  // REQUIRES op to be sum, min or max (bool: min or max), and num_ranks <= max_ranks(dtype).
  BenchPattern(DType dtype, ReduceOp op, int num_ranks);

  // 3 per rank has to be exact: 85 for bf16, 42 for int8, 85 for uint8, .. ; no limit for wider types.
  static int max_ranks(DType dtype);

  // Inputs of `rank` for elements [first, first + count) of the message.
  void fill(std::byte* to, int64_t first, int64_t count, Rank rank, int repetition) const;
  // How many elements differ from rank `rank`'s inputs, or from all ranks' inputs reduced.
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
