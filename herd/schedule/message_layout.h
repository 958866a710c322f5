// Defines where the parts of a message lie: chunk r of n equal ones (parts.h), or as the header's `counts` say.
// Threads: plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/schedule/parts.h"
#include "herd/schedule/schedule.h"

namespace herd {

class MessageLayout {
 public:
  // REQUIRES what check_counts() asks for.
  explicit MessageLayout(const Schedule& header);

  // Of the whole message (all_to_all: of what rank 0 sends, where the blocks are equal).
  Range part(int index) const;
  int64_t longest_part() const { return longest_; }

  // all_to_all: what `from` sends to `to`, in the input of `from` and in the output of `to`.
  Range sent(Rank from, Rank to) const;
  Range received(Rank from, Rank to) const;
  int64_t num_sent(Rank from) const { return sent(from, num_ranks_ - 1).end; }
  int64_t num_received(Rank to) const { return received(num_ranks_ - 1, to).end; }
  bool in_place_fits() const;  // every block is received where the one in exchange was sent from

 private:
  int num_ranks_;
  int64_t elements_;
  int64_t longest_ = 0;
  std::vector<int64_t> begins_ = {};                     // of parts, and the end of the last; empty = equal parts
  std::vector<int64_t> send_begins_ = {}, counts_ = {};  // of all_to_all, [from * n + to]
  std::vector<int64_t> receive_begins_ = {};
};

// `elements` as the header's counts imply it: their sum, for all_to_all the most that any rank sends or receives.
int64_t elements_of_counts(Collective collective, int num_ranks, const std::vector<int64_t>& counts);

// Throws kBadConfig where counts are given to a collective that has none, or are too few, negative, or do not make up
// `elements`; and for an all_to_all in place whose blocks do not fit.
void check_counts(const Schedule& header);

}  // namespace herd
