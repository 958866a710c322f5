// Lays the ranks of a collective out as a grid of axes, the fastest first: cell = c0 + d0 * (c1 + d1 * (c2 + ..)). The
// cell of a rank is its number where hosts hold consecutive ranks. Elsewhere it is its index among the ranks sorted by
// host. So axis 0 stays inside of a host wherever ranks were placed. Threads: plain data.
#pragma once

#include <string>
#include <vector>

#include "herd/collectives/request.h"

namespace herd {

class Grid {
 public:
  // Takes the axes of request.grid; where that is empty and hosts have equally many ranks, (ranks of a host, hosts).
  // Has no axes otherwise.
  explicit Grid(const CollectiveRequest& request);

  int num_axes() const { return static_cast<int>(sizes_.size()); }
  int size(int axis) const { return sizes_[static_cast<size_t>(axis)]; }
  bool cells_are_ranks() const { return rank_at_.empty(); }
  Rank rank_at(int cell) const { return rank_at_.empty() ? cell : rank_at_[static_cast<size_t>(cell)]; }
  int cell_of(Rank rank) const { return cell_of_.empty() ? rank : cell_of_[static_cast<size_t>(rank)]; }
  int coordinate(Rank rank, int axis) const { return cell_of(rank) / stride(axis) % size(axis); }
  int stride(int axis) const;  // cells between neighbours along the axis
  // Returns the ranks that differ from this one on one axis alone, by their coordinate there; this one is among them.
  std::vector<Rank> line(Rank rank, int axis) const;
  // Tells whether every line of the axis is on one host.
  bool is_inside_hosts(const CollectiveRequest& request, int axis) const;

 private:
  std::vector<int> sizes_;
  std::vector<Rank> rank_at_;
  std::vector<int> cell_of_;
};

// Returns the ranks of each host, in rank order, hosts in the order of their first ranks. Where the request lists no
// hosts, it returns one list of all ranks if they share a host, else a list for each rank.
std::vector<std::vector<Rank>> ranks_by_host(const CollectiveRequest& request);

}  // namespace herd
