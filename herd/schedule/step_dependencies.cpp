#include "herd/schedule/step_dependencies.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "herd/schedule/interval_map.h"

namespace herd {
namespace {

struct Touches {
  int writer = -1;
  std::vector<int> readers;  // since the last write
};

using Memory = std::map<std::pair<Rank, Space>, IntervalMap<Touches>>;

bool hands_over(StepKind kind) { return kind == StepKind::kSignal || kind == StepKind::kWait; }

void collect_reads(Memory& memory, const Slice& slice, int step, std::vector<int>& before) {
  memory[{slice.rank, slice.space}].update(slice.begin, slice.end, [&](int64_t, int64_t, Touches& touches) {
    if (touches.writer >= 0) before.push_back(touches.writer);
    touches.readers.push_back(step);
  });
}

void collect_writes(Memory& memory, const Slice& slice, int step, std::vector<int>& before) {
  if (slice.begin >= slice.end) return;
  auto& space = memory[{slice.rank, slice.space}];
  space.update(slice.begin, slice.end, [&](int64_t, int64_t, Touches& touches) {
    if (touches.writer >= 0) before.push_back(touches.writer);
    before.insert(before.end(), touches.readers.begin(), touches.readers.end());
  });
  space.assign(slice.begin, slice.end, Touches{step, {}});
}

// Which step of each lane is known to be done before a step starts: what transitive reduction needs. Beyond this many
// entries only the edges that a lane itself implies are left out.
constexpr size_t kMaxReachEntries = size_t{1} << 24;

class Reduction {
 public:
  Reduction(const Schedule& schedule) {
    for (const Step& step : schedule.steps)
      lane_.push_back(lanes_.try_emplace(lane_of(step), lanes_.size()).first->second);
    full_ = schedule.steps.size() * lanes_.size() <= kMaxReachEntries;
    if (full_) reach_.assign(schedule.steps.size() * lanes_.size(), -1);
    last_.assign(lanes_.size(), -1);
  }

  // The edges of `step`, whose hazards are `before`.
  std::vector<int> edges(int step, std::vector<int> before) {
    if (last_[lane_[step]] >= 0) before.push_back(last_[lane_[step]]);
    last_[lane_[step]] = step;
    std::sort(before.begin(), before.end(), std::greater<>());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    std::erase(before, step);
    std::vector<int> kept;
    if (full_) {
      int* mine = &reach_[step * lanes_.size()];
      for (const int earlier : before) {
        if (mine[lane_[earlier]] >= earlier) continue;  // done before something that is kept
        kept.push_back(earlier);
        const int* theirs = &reach_[earlier * lanes_.size()];
        for (size_t lane = 0; lane < lanes_.size(); ++lane) mine[lane] = std::max(mine[lane], theirs[lane]);
        mine[lane_[earlier]] = std::max(mine[lane_[earlier]], earlier);
      }
    } else {
      std::map<size_t, int> latest;
      for (const int earlier : before) {
        if (latest.emplace(lane_[earlier], earlier).second) kept.push_back(earlier);
      }
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

 private:
  std::map<LaneId, size_t> lanes_;
  std::vector<size_t> lane_;  // of each step
  std::vector<int> last_;     // step of each lane
  std::vector<int> reach_;    // steps x lanes
  bool full_ = true;
};

}  // namespace

LaneId lane_of(const Step& step) {
  switch (step.kind) {
    case StepKind::kSend:
      return {LaneKind::kSend, step.peer};
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      return {LaneKind::kReceive, step.peer};
    case StepKind::kWait:
      return {LaneKind::kWait, step.peer};
    case StepKind::kCopy:
    case StepKind::kReduce:
    case StepKind::kSignal:
      break;
  }
  return {LaneKind::kLocal, -1};
}

std::vector<std::vector<int>> derive_dependencies(const Schedule& schedule) {
  Memory memory;
  Reduction reduction(schedule);
  std::vector<std::vector<int>> edges;
  edges.reserve(schedule.steps.size());
  for (int i = 0; i < static_cast<int>(schedule.steps.size()); ++i) {
    const Step& step = schedule.steps[i];
    std::vector<int> before;
    for (const Slice& slice : step.sources) {
      if (!hands_over(step.kind)) collect_reads(memory, slice, i, before);
    }
    for (const Slice& slice : hands_over(step.kind) ? step.sources : step.targets) {
      collect_writes(memory, slice, i, before);
    }
    edges.push_back(reduction.edges(i, std::move(before)));
  }
  return edges;
}

}  // namespace herd
