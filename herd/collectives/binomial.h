// Defines a binomial tree over n ranks whose subtrees are ranges of places. The parent of place p (root has place 0) is
// p minus its lowest set bit, and the subtree of p is [p, p + num_below(p)). The tree is ceil(log2 n) deep. Threads:
// plain data.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "herd/schedule/builder.h"

namespace herd {

class BinomialTree {
 public:
  BinomialTree(int num_ranks, Rank root) : n_(num_ranks), root_(root) {}

  int place_of(Rank rank) const { return (rank - root_ + n_) % n_; }
  Rank rank_at(int place) const { return (place + root_) % n_; }
  int parent(int place) const { return place & (place - 1); }  // REQUIRES place > 0
  // Counts the places of the subtree, its root included.
  int num_below(int place) const {
    const int reach = place == 0 ? n_ : place & -place;
    return std::min(reach, n_ - place);
  }
  std::vector<int> children(int place) const {  // nearest first
    std::vector<int> found;
    const int reach = place == 0 ? n_ : place & -place;
    for (int distance = 1; distance < reach && place + distance < n_; distance *= 2) found.push_back(place + distance);
    return found;
  }

 private:
  int n_;
  Rank root_;
};

// Returns the parts of the subtree of `place` as at most two ranges of the message, since its ranks may pass over rank
// n-1 to 0.
std::vector<Range> subtree_parts(const Builder& builder, const BinomialTree& tree, int place);

}  // namespace herd
