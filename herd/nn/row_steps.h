// Says which rows a rank of P sends and gets in each step of an exchange whose counts are known only while it runs. The
// steps are the same for any counts: a place or a number of rows is base + the sum of coefficient * count, over the
// rows that this rank sends to each rank and gets from each. In step d a rank sends to the rank d behind it and gets
// from the one d before it; step 0 is its own rows. Rows for a rank lie together, in the order of ranks, and so do
// those from a rank. Messages of no rows are left out.   Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace herd::nn {

struct RowOperand {
  int64_t base = 0;
  std::vector<int64_t> of_sent = {}, of_received = {};  // coefficients, by rank; empty = 0 for all
  // Returns its value for the rows that are sent to each rank, and those that come from each.
  int64_t value(std::span<const int64_t> sent, std::span<const int64_t> received) const;
  bool operator==(const RowOperand&) const = default;
};

struct RowStep {
  int target = 0, source = 0;
  RowOperand send_begin = {}, send_rows = {};        // among the rows that this rank has
  RowOperand receive_begin = {}, receive_rows = {};  // among those that come to it
  bool operator==(const RowStep&) const = default;
};

std::vector<RowStep> row_steps(int ranks, int rank);

// Returns what is wrong with the steps of all ranks for some counts, or nothing: then for any counts each row goes to
// its rank once, what comes fills the rows of a rank without a gap and in the order of their sources, and each message
// meets one of as many rows in the same step. So where a rank sends at most C rows to another, P C rows have room for
// what comes.
std::string unproved(const std::vector<std::vector<RowStep>>& steps_of_ranks);

}  // namespace herd::nn
