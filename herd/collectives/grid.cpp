#include "herd/collectives/grid.h"

#include <algorithm>
#include <map>

#include "herd/base/error.h"

namespace herd {

std::vector<std::vector<Rank>> ranks_by_host(const CollectiveRequest& request) {
  std::vector<std::vector<Rank>> hosts;
  std::map<int, size_t> index;
  for (Rank rank = 0; rank < request.num_ranks; ++rank) {
    const int host = !request.hosts.empty() ? request.hosts[static_cast<size_t>(rank)] : request.same_host ? 0 : rank;
    const auto [at, added] = index.try_emplace(host, hosts.size());
    if (added) hosts.emplace_back();
    hosts[at->second].push_back(rank);
  }
  return hosts;
}

Grid::Grid(const CollectiveRequest& request) : sizes_(request.grid) {
  const auto reject = [](const std::string& rule) { throw Error(Code::kBadConfig, rule); };
  const std::string num_ranks_text = std::to_string(request.num_ranks);
  int64_t cells = 1;
  for (const int axis_size : sizes_) cells *= axis_size;
  if (!sizes_.empty() && cells != request.num_ranks) {
    reject("a grid's axes multiply to the ranks, but these make " + std::to_string(cells) + ", not " + num_ranks_text);
  }
  if (!request.hosts.empty() && static_cast<int>(request.hosts.size()) != request.num_ranks) {
    reject("every rank has a host, but " + std::to_string(request.hosts.size()) + " are given for " + num_ranks_text +
           " ranks");
  }
  if (request.hosts.empty()) return;
  const auto hosts = ranks_by_host(request);
  if (sizes_.empty()) {
    const size_t ranks_per_host = hosts[0].size();
    if (hosts.size() < 2 || ranks_per_host < 2) return;
    const auto has_as_many = [&](const auto& ranks) { return ranks.size() == ranks_per_host; };
    if (!std::all_of(hosts.begin(), hosts.end(), has_as_many)) return;
    sizes_ = {static_cast<int>(ranks_per_host), static_cast<int>(hosts.size())};
  }
  for (const auto& ranks : hosts) rank_at_.insert(rank_at_.end(), ranks.begin(), ranks.end());
  if (std::is_sorted(rank_at_.begin(), rank_at_.end())) {
    rank_at_.clear();
    return;
  }
  cell_of_.resize(rank_at_.size());
  for (size_t cell = 0; cell < rank_at_.size(); ++cell) {
    cell_of_[static_cast<size_t>(rank_at_[cell])] = static_cast<int>(cell);
  }
}

int Grid::stride(int axis) const {
  int stride = 1;
  for (int lower_axis = 0; lower_axis < axis; ++lower_axis) stride *= size(lower_axis);
  return stride;
}

std::vector<Rank> Grid::line(Rank rank, int axis) const {
  const int step = stride(axis), first = cell_of(rank) - coordinate(rank, axis) * step;
  std::vector<Rank> ranks;
  for (int c = 0; c < size(axis); ++c) ranks.push_back(rank_at(first + c * step));
  return ranks;
}

bool Grid::is_inside_hosts(const CollectiveRequest& request, int axis) const {
  if (request.same_host) return true;
  if (request.hosts.empty()) return false;
  const int step = stride(axis), axis_size = size(axis);
  for (int cell = 0; cell < request.num_ranks; ++cell) {
    const int first = cell - cell / step % axis_size * step;
    if (request.hosts[static_cast<size_t>(rank_at(cell))] != request.hosts[static_cast<size_t>(rank_at(first))]) {
      return false;
    }
  }
  return true;
}

}  // namespace herd
