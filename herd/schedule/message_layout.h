// Defines where the parts of a message lie: equal parts as parts.h cuts them, or parts of the sizes in a schedule's
// `counts`. `header` is a schedule of which only the fields before its steps are read. Offsets count elements. Threads:
// plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/schedule/parts.h"
#include "herd/schedule/schedule.h"

namespace herd {

class MessageLayout {
 public:
  // REQUIRES a header that check_counts() passes.
  explicit MessageLayout(const Schedule& header);

  // Returns a part of the whole message. For all_to_all it REQUIRES equal blocks, and returns the range of the block
  // that every rank sends to rank `index`.
  Range part(int index) const;
  int64_t longest_part() const { return longest_; }

  // Return, for all_to_all, what `from` sends to `to`: its range in the input of `from`, and in the output of `to`.
  Range sent(Rank from, Rank to) const;
  Range received(Rank from, Rank to) const;
  int64_t num_sent(Rank from) const { return sent(from, num_ranks_ - 1).end; }
  int64_t num_received(Rank to) const { return received(num_ranks_ - 1, to).end; }
  bool in_place_fits() const;  // true where each rank's block from a peer has the range of its block to that peer

 private:
  int num_ranks_;
  int64_t elements_;
  int64_t longest_ = 0;
  std::vector<int64_t> begins_ = {};  // begins of parts, and the end of the last; empty = equal parts
  std::vector<int64_t> send_begins_ = {}, counts_ = {};  // for all_to_all, at [from * n + to]
  std::vector<int64_t> receive_begins_ = {};
};

// Returns the elements that the header's counts imply: their sum; for all_to_all the most that any rank sends or
// receives.
int64_t elements_of_counts(Collective collective, int num_ranks, const std::vector<int64_t>& counts);

// Throws kBadConfig where counts are given to a collective that has none, are too few or negative, or do not make up
// `elements`. Also throws it for an all_to_all in place whose blocks do not fit.
void check_counts(const Schedule& header);

}  // namespace herd
