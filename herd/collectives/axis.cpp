#include <algorithm>
#include <functional>

#include "herd/collectives/axis_internal.h"
#include "herd/collectives/registry.h"

namespace herd {
namespace {

constexpr int64_t kPushBytes = 16 << 20;  // from here on results leave the cache, where a push writes them only once

std::string_view shared_memory_algorithm(const CollectiveRequest& line) {
  if (!line.direct) return "staged";
  switch (line.collective) {
    case Collective::kReduce:
      return "direct_push";
    case Collective::kAllReduce:
    case Collective::kAllGather:
      return line.bytes() >= kPushBytes ? "direct_push" : "direct_pull";
    default:
      return "direct_pull";
  }
}

}  // namespace

CollectiveRequest axis_request(const CollectiveRequest& whole, const Grid& grid, int axis, Collective collective,
                               const AxisStyle& style, bool direct) {
  CollectiveRequest line;
  line.collective = collective;
  line.self = grid.coordinate(whole.self, axis);
  line.num_ranks = grid.size(axis);
  line.dtype = whole.dtype;
  line.segment_bytes = whole.segment_bytes;
  line.same_host = style.shared_memory && grid.is_inside_hosts(whole, axis);
  line.direct = line.same_host && whole.direct && direct;
  // Stage memory serves one axis. That of a second one would lie at other offsets on ranks whose first lines differ.
  line.same_host &= axis == 0 || line.direct;
  return line;
}

Schedule axis_schedule(const CollectiveRequest& line, const AxisStyle& style) {
  return build_schedule(line.same_host ? shared_memory_algorithm(line) : style.between_hosts_algorithm, line);
}

std::vector<std::vector<Rank>> ranks_of_line(const Grid& grid, Rank rank, int axis) {
  const int lower_cell = grid.cell_of(rank) % grid.stride(axis);
  std::vector<std::vector<Rank>> ranks(static_cast<size_t>(grid.size(axis)));
  // Appends the ranks whose cells differ from `cell` along the axes from `next` on.
  const std::function<void(int, int, std::vector<Rank>&)> collect = [&](int next, int cell, std::vector<Rank>& found) {
    if (next == grid.num_axes()) {
      found.push_back(grid.rank_at(cell));
      return;
    }
    for (int c = 0; c < grid.size(next); ++c) collect(next + 1, cell + c * grid.stride(next), found);
  };
  for (int c = 0; c < grid.size(axis); ++c) {
    collect(axis + 1, lower_cell + c * grid.stride(axis), ranks[static_cast<size_t>(c)]);
  }
  return ranks;
}

std::string grid_why_not(const CollectiveRequest& request, int num_axes, bool first_axis_inside_hosts) {
  const Grid grid(request);
  if (grid.num_axes() < 2) return "needs a grid of ranks, or several hosts of equally many";
  if (num_axes > 0 && grid.num_axes() != num_axes) {
    return "needs a grid of " + std::to_string(num_axes) + " axes, this one has " + std::to_string(grid.num_axes());
  }
  if (first_axis_inside_hosts && !grid.is_inside_hosts(request, 0)) return "needs the first axis inside of hosts";
  return "";
}

}  // namespace herd
