// Maps n ranks to p places, p the largest power of two <= n. Ranks 2i and 2i+1 share place i for i < n - p: the odd one
// hands over to the even one and is idle. All others have a place of their own. Places stand in the order of ranks, so
// neighbouring places hold neighbouring parts. Source: Thakur, Rabenseifner & Gropp 2005,
// doi:10.1177/1094342005051521, section 4.5.   Threads: plain data.
#pragma once

#include <bit>

#include "herd/schedule/builder.h"

namespace herd {

class FoldedPlaces {
 public:
  explicit FoldedPlaces(int num_ranks)
      : num_places_(static_cast<int>(std::bit_floor(static_cast<unsigned>(num_ranks)))),
        num_shared_(num_ranks - num_places_) {}

  int num_places() const { return num_places_; }
  bool is_idle(Rank rank) const { return rank < 2 * num_shared_ && rank % 2 == 1; }
  bool has_idle_partner(Rank rank) const { return rank < 2 * num_shared_ && rank % 2 == 0; }
  int place_of(Rank rank) const { return rank < 2 * num_shared_ ? rank / 2 : rank - num_shared_; }
  Rank rank_at(int place) const { return place < num_shared_ ? 2 * place : place + num_shared_; }

  // Returns the range of the parts of all ranks at places [begin, end). REQUIRES end > begin.
  Range parts_of(const Builder& b, int begin, int end) const {
    const Rank last = end == num_places_ ? b.num_ranks() - 1 : rank_at(end) - 1;
    return {b.part(rank_at(begin)).begin, b.part(last).end};
  }

 private:
  int num_places_, num_shared_;
};

}  // namespace herd
