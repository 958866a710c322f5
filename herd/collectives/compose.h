// Puts the schedule of a sub-group into a larger one: ranks and slices are mapped, and the kinds and the order of steps
// stay. Hierarchies, tori and meshes are made of it.   Threads: pure.
#pragma once

#include <vector>

#include "herd/schedule/builder.h"

namespace herd {

// A Window says where the elements of a space of a sub-schedule lie. All ranks of the sub-group that read or
// write each other's memory there have the same window.
class Window {
 public:
  struct Run {
    int64_t sub_begin = 0;  // elements [sub_begin, sub_begin + size) of the sub-schedule's space
    int64_t begin = 0;      // lie at [begin, begin + size) of the window's space
    int64_t size = 0;
  };

  Window() = default;
  explicit Window(Slice slice);  // the elements lie in one piece
  explicit Window(Space space) : space_(space) {}
  // Appends the next elements. They join the run before where they touch it. Steps are cut where runs end, and both
  // ends of a message must be cut alike. `apart` begins a new run even where they touch, so that this end is cut as the
  // peer's is.
  void append(Range at, bool apart = false);

  Space space() const { return space_; }
  const std::vector<Run>& runs() const { return runs_; }

 private:
  Space space_ = Space::kOutput;
  std::vector<Run> runs_;
};

struct SubGroup {
  std::vector<Rank> ranks;  // by their rank in the sub-schedule
  Window input, output;     // of the sub-schedule's kInput and kOutput
  bool completes = true;    // false: the whole group still has to add to the sums that the sub-schedule completes
};

// Adds the steps of `sub` to the builder, with scratch and stage memory of their own. A step whose slices lie in
// several runs becomes several. Throws kBug where a slice is outside of its window.
void add_schedule(Builder& builder, Schedule sub, const SubGroup& group);

}  // namespace herd
