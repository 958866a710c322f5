#include "herd/collectives/axis_internal.h"

namespace herd {
namespace {

// Writes a reduce-scatter as reduce-scatters along the axes of a grid.
class GridReduceScatter {
 public:
  GridReduceScatter(const CollectiveRequest& request, const AxisStyle& style)
      : request_(request), style_(style), grid_(request), b_(builder_for(request, style.name)) {}

  Schedule build() {
    if (build_if_alone(b_)) return b_.finish();
    int axis = 0;
    if (!request_.in_place) leave_input(axis);
    for (; axis < grid_.num_axes(); ++axis) add(axis);
    const Range mine = b_.part(b_.self());
    if (!request_.in_place) b_.copy(kept_, {b_.output(mine)});
    return b_.finish();
  }

 private:
  struct Line {
    CollectiveRequest request;
    Window window;  // the parts that each rank of the line reduces, in the memory of the input
  };

  Line line_of(int axis) const {
    Line line{axis_request(request_, grid_, axis, Collective::kReduceScatter, style_, request_.in_place || axis == 0),
              Window(b_.input(Range{}).space)};
    for (const auto& ranks : ranks_of_line(grid_, b_.self(), axis)) {
      int64_t count = 0;
      for (const Rank rank : ranks) {
        count += b_.part(rank).size();
        line.window.append(b_.part(rank));
      }
      line.request.counts.push_back(count);
      line.request.elements += count;
    }
    line.request.in_place = true;
    return line;
  }

  SubGroup group(int axis, const Window& input, const Window& output) const {
    return {grid_.line(b_.self(), axis), input, output, axis == grid_.num_axes() - 1};
  }

  // Moves the sums to scratch. The first axis writes them there if it reads its peers' memory. Else the input is copied
  // in the order of the first axis, since messages of partial sums are contiguous.
  void leave_input(int& axis) {
    Line line = line_of(0);
    if (!line.request.same_host) {
      kept_ = b_.scratch(b_.elements());
      for (const Window::Run& run : line.window.runs()) {
        const int64_t begin = kept_.begin + run.sub_begin;
        b_.copy(b_.input({run.begin, run.begin + run.size}), {{b_.self(), Space::kScratch, begin, begin + run.size}});
      }
      return;
    }
    line.request.in_place = false;
    kept_ = b_.scratch(line.request.counts[static_cast<size_t>(line.request.self)]);
    add_schedule(b_, axis_schedule(line.request, style_), group(0, line.window, Window(kept_)));
    axis = 1;
  }

  void add(int axis) {
    const Line line = line_of(axis);
    const Window window = request_.in_place ? line.window : Window(kept_);
    add_schedule(b_, axis_schedule(line.request, style_), group(axis, window, window));
    if (request_.in_place) return;
    for (int c = 0; c < line.request.self; ++c) kept_.begin += line.request.counts[static_cast<size_t>(c)];
    kept_.end = kept_.begin + line.request.counts[static_cast<size_t>(line.request.self)];
  }

  const CollectiveRequest& request_;
  const AxisStyle& style_;
  Grid grid_;
  Builder b_;
  Slice kept_ = {};  // out of place: partial sums in scratch
};

}  // namespace

Schedule reduce_scatter_on_grid(const CollectiveRequest& request, const AxisStyle& style) {
  return GridReduceScatter(request, style).build();
}

}  // namespace herd
