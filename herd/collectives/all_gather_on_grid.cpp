#include "herd/collectives/axis_internal.h"

namespace herd {

Schedule all_gather_on_grid(const CollectiveRequest& request, const AxisStyle& style) {
  Builder b = builder_for(request, style.name);
  if (build_if_alone(b)) return b.finish();
  const Grid grid(request);
  const Range mine = b.part(b.self());
  b.copy(b.input(mine), {b.output(mine)});
  for (int axis = grid.num_axes() - 1; axis >= 0; --axis) {
    CollectiveRequest line = axis_request(request, grid, axis, Collective::kAllGather, style, true);
    line.in_place = true;
    Window window(Space::kOutput);
    for (const auto& ranks : ranks_of_line(grid, b.self(), axis)) {
      int64_t count = 0;
      for (const Rank rank : ranks) {
        count += b.part(rank).size();
        window.append(b.part(rank));
      }
      line.counts.push_back(count);
      line.elements += count;
    }
    add_schedule(b, axis_schedule(line, style), {grid.line(b.self(), axis), window, window});
  }
  return b.finish();
}

}  // namespace herd
