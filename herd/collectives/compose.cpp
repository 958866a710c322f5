#include "herd/collectives/compose.h"

#include <algorithm>
#include <set>

#include "herd/base/check.h"

namespace herd {
namespace {

// Adds the steps of a sub-schedule to a builder: peers become the group's ranks, slices lie in its windows.
class Mapper {
 public:
  Mapper(Builder& builder, const Schedule& sub, const SubGroup& group)
      : builder_(builder),
        group_(group),
        scratch_(builder.scratch(sub.scratch_elements)),
        stage_(builder.stage(sub.stage_elements)) {}

  void add(Step step) {
    if (step.peer >= 0) step.peer = group_.ranks[static_cast<size_t>(step.peer)];
    step.completes &= group_.completes;
    if (step.kind == StepKind::kSignal || step.kind == StepKind::kWait) {
      step.sources = mapped_whole(step.sources);
    } else if (step.kind == StepKind::kSend) {
      add_cut(std::move(step), 1, 0);
      return;
    } else if (step.kind == StepKind::kReceive) {
      add_cut(std::move(step), 0, 1);
      return;
    } else {
      add_cut(std::move(step), step.sources.size(), step.targets.size());
      return;
    }
    builder_.add(std::move(step));
  }

 private:
  const Window* window_of(const Slice& slice) const {
    if (slice.space == Space::kInput) return &group_.input;
    if (slice.space == Space::kOutput) return &group_.output;
    return nullptr;
  }

  Slice shifted(const Slice& slice) const {  // for scratch and stage memory
    const int64_t shift = slice.space == Space::kScratch ? scratch_.begin : stage_.begin;
    return {group_.ranks[static_cast<size_t>(slice.rank)], slice.space, slice.begin + shift, slice.end + shift};
  }

  // Returns the pieces of a slice in the whole message, in order.
  std::vector<Slice> mapped(const Slice& slice) const {
    const Window* window = window_of(slice);
    if (window == nullptr) return {shifted(slice)};
    const Rank rank = group_.ranks[static_cast<size_t>(slice.rank)];
    std::vector<Slice> pieces;
    const auto& runs = window->runs();
    auto run = std::upper_bound(runs.begin(), runs.end(), slice.begin,
                                [](int64_t offset, const Window::Run& r) { return offset < r.sub_begin + r.size; });
    int64_t offset = slice.begin;
    for (; run != runs.end() && offset < slice.end; ++run) {
      const int64_t end = std::min(slice.end, run->sub_begin + run->size), shift = run->begin - run->sub_begin;
      pieces.push_back({rank, window->space(), offset + shift, end + shift});
      offset = end;
    }
    HERD_CHECK_EQ(offset, std::max(slice.begin, slice.end));
    if (pieces.empty()) pieces.push_back({rank, window->space(), 0, 0});
    return pieces;
  }

  std::vector<Slice> mapped_whole(const std::vector<Slice>& slices) const {
    std::vector<Slice> all;
    for (const Slice& slice : slices) {
      const auto pieces = mapped(slice);
      all.insert(all.end(), pieces.begin(), pieces.end());
    }
    std::erase_if(all, [](const Slice& slice) { return slice.size() == 0; });
    return all;
  }

  // The first `sources` and `targets` of the step move together; further ones only order it.
  void add_cut(Step step, size_t sources, size_t targets) {
    const int64_t size = sources > 0 ? step.sources[0].size() : step.targets[0].size();
    std::set<int64_t> cuts = {0, size};
    for (size_t i = 0; i < sources; ++i) collect_cuts(step.sources[i], cuts);
    for (size_t i = 0; i < targets; ++i) collect_cuts(step.targets[i], cuts);
    const std::vector<Slice> more_sources = mapped_whole({step.sources.begin() + sources, step.sources.end()});
    const std::vector<Slice> more_targets = mapped_whole({step.targets.begin() + targets, step.targets.end()});
    for (auto begin = cuts.begin(), end = std::next(begin); begin != cuts.end(); ++begin) {
      end = std::next(begin);
      if (end == cuts.end() && size > 0) break;
      const int64_t from = *begin, to = size > 0 ? *end : 0;
      Step piece = step;
      piece.sources.clear();
      piece.targets.clear();
      for (size_t i = 0; i < sources; ++i) piece.sources.push_back(cut(step.sources[i], from, to));
      for (size_t i = 0; i < targets; ++i) piece.targets.push_back(cut(step.targets[i], from, to));
      // Windows may overlap, and a copy of a slice onto itself is left out.
      if (step.kind == StepKind::kCopy) std::erase(piece.targets, piece.sources[0]);
      piece.sources.insert(piece.sources.end(), more_sources.begin(), more_sources.end());
      piece.targets.insert(piece.targets.end(), more_targets.begin(), more_targets.end());
      if (step.kind == StepKind::kCopy && piece.targets.empty()) continue;
      builder_.add(std::move(piece));
    }
  }

  void collect_cuts(const Slice& slice, std::set<int64_t>& cuts) const {
    int64_t end = 0;
    for (const Slice& piece : mapped(slice)) cuts.insert(end += piece.size());
  }

  Slice cut(Slice slice, int64_t from, int64_t to) const {
    slice.end = slice.begin + to;
    slice.begin += from;
    return mapped(slice)[0];
  }

  Builder& builder_;
  const SubGroup& group_;
  Slice scratch_, stage_;
};

}  // namespace

Window::Window(Slice slice) : space_(slice.space), runs_{{0, slice.begin, slice.size()}} {}

void Window::append(Range at, bool apart) {
  if (at.size() == 0) return;
  if (!runs_.empty()) {
    Run& last = runs_.back();
    if (!apart && last.begin + last.size == at.begin) {
      last.size += at.size();
      return;
    }
  }
  runs_.push_back({runs_.empty() ? 0 : runs_.back().sub_begin + runs_.back().size, at.begin, at.size()});
}

void add_schedule(Builder& builder, Schedule sub, const SubGroup& group) {
  HERD_CHECK_EQ(static_cast<int>(group.ranks.size()), sub.num_ranks);
  Mapper mapper(builder, sub, group);
  for (Step& step : sub.steps) mapper.add(std::move(step));
}

}  // namespace herd
