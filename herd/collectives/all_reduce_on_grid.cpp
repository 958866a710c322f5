#include <algorithm>

#include "herd/collectives/axis_internal.h"

namespace herd {
namespace {

constexpr int64_t kMinPartBytes = 1 << 20;
constexpr int kMaxParts = 4;

// Long messages go in parts, so that one travels between hosts while the next is reduced inside them. In stage memory
// there is one part, since each would need its own.
int num_parts(const CollectiveRequest& request, const AxisStyle& style) {
  if (style.shared_memory && !request.direct) return 1;
  return static_cast<int>(std::clamp<int64_t>(request.bytes() / kMinPartBytes, 1, kMaxParts));
}

// Writes an all-reduce as a pipeline of parts, each by collectives along the axes of a grid.
class GridAllReduce {
 public:
  GridAllReduce(const CollectiveRequest& request, const AxisStyle& style)
      : request_(request), style_(style), grid_(request), b_(builder_for(request, style.name)) {}

  Schedule build() {
    if (build_if_alone(b_)) return b_.finish();
    const Range all{0, b_.elements()};
    const int last = grid_.num_axes() - 1;
    if (style_.reduces_whole_message_per_axis) {
      for (int axis = 0; axis <= last; ++axis) add(axis, Collective::kAllReduce, all, axis == 0, axis == last);
      return b_.finish();
    }
    const int parts = num_parts(request_, style_);
    const int stages = 2 * last + 1;  // reduce-scatters, the all-reduce and all-gathers of each part
    for (int step = 0; step < parts + stages - 1; ++step) {
      for (int part = std::max(0, step - stages + 1); part <= std::min(step, parts - 1); ++part) {
        add_stage(part_of(all, parts, part), step - part);
      }
    }
    return b_.finish();
  }

 private:
  void add_stage(Range part, int stage) {
    const int last = grid_.num_axes() - 1, axis = stage <= last ? stage : 2 * last - stage;
    Range window = part;
    for (int lower_axis = 0; lower_axis < axis; ++lower_axis) {
      window = part_of(window, grid_.size(lower_axis), grid_.coordinate(b_.self(), lower_axis));
    }
    const Collective collective = stage < last    ? Collective::kReduceScatter
                                  : stage == last ? Collective::kAllReduce
                                                  : Collective::kAllGather;
    add(axis, collective, window, stage == 0, stage == last);
  }

  void add(int axis, Collective collective, Range window, bool from_input, bool completes) {
    CollectiveRequest line = axis_request(request_, grid_, axis, collective, style_, true);
    line.elements = window.size();
    line.in_place = request_.in_place || !from_input;
    SubGroup group{grid_.line(b_.self(), axis), Window(b_.input(window)), Window(b_.output(window)), completes};
    if (collective == Collective::kReduceScatter && !line.in_place) {
      group.output = Window(b_.output(part_of(window, line.num_ranks, line.self)));
    }
    add_schedule(b_, axis_schedule(line, style_), group);
  }

  const CollectiveRequest& request_;
  const AxisStyle& style_;
  Grid grid_;
  Builder b_;
};

}  // namespace

Schedule all_reduce_on_grid(const CollectiveRequest& request, const AxisStyle& style) {
  return GridAllReduce(request, style).build();
}

Schedule all_reduce_hierarchical_tree(const CollectiveRequest& request) {
  const AxisStyle style{"hierarchical_tree", true, "circulant"};
  Builder b = builder_for(request, style.name);
  if (build_if_alone(b)) return b.finish();
  const Range all{0, b.elements()};
  std::vector<Rank> host_ranks, leaders;
  for (const auto& ranks : ranks_by_host(request)) {
    leaders.push_back(ranks[0]);
    if (std::find(ranks.begin(), ranks.end(), b.self()) != ranks.end()) host_ranks = ranks;
  }
  const auto add = [&](const std::vector<Rank>& ranks, Collective collective, bool inside_host, bool in_place,
                       bool completes) {
    const auto self = std::find(ranks.begin(), ranks.end(), b.self());
    if (self == ranks.end()) return;
    CollectiveRequest line;
    line.collective = collective;
    line.self = static_cast<Rank>(self - ranks.begin());
    line.num_ranks = static_cast<int>(ranks.size());
    line.elements = b.elements();
    line.dtype = request.dtype;
    line.in_place = in_place;
    line.same_host = inside_host;
    line.direct = inside_host && request.direct;
    add_schedule(b, axis_schedule(line, style), {ranks, Window(b.input(all)), Window(b.output(all)), completes});
  };
  add(host_ranks, Collective::kReduce, true, request.in_place, leaders.size() == 1);
  add(leaders, Collective::kAllReduce, false, true, true);
  add(host_ranks, Collective::kBroadcast, true, true, false);
  return b.finish();
}

}  // namespace herd
