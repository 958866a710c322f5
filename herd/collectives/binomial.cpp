#include "herd/collectives/binomial.h"

namespace herd {

std::vector<Range> subtree_parts(const Builder& b, const BinomialTree& tree, int place) {
  const Rank first = tree.rank_at(place);
  const Rank last = first + tree.num_below(place) - 1;
  const int n = b.num_ranks();
  if (last < n) return {{b.part(first).begin, b.part(last).end}};
  return {{b.part(first).begin, b.part(n - 1).end}, {0, b.part(last - n).end}};
}

}  // namespace herd
