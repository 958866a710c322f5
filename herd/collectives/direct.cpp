#include "herd/collectives/direct.h"

namespace herd {

std::vector<Rank> peers_of(const Builder& b) {
  std::vector<Rank> peers;
  for (int distance = 1; distance < b.num_ranks(); ++distance) peers.push_back(b.neighbor(distance));
  return peers;
}

std::vector<Slice> inputs_of_all(const Builder& b, Range range) {
  std::vector<Slice> slices;
  for (Rank rank = 0; rank < b.num_ranks(); ++rank) slices.push_back(b.input(range, rank));
  return slices;
}

}  // namespace herd
