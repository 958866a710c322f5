#include "herd/schedule/step_dependencies.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "herd/schedule/interval_map.h"

namespace herd {
namespace {

// Holds the steps that last accessed a range of memory.
struct LastAccesses {
  int writer = -1;           // no step yet
  std::vector<int> readers;  // since the last write
};

using Memory = std::map<std::pair<Rank, Space>, IntervalMap<LastAccesses>>;

// A signal or a wait lists the slices that it hands over as its sources.
bool hands_over(StepKind kind) { return kind == StepKind::kSignal || kind == StepKind::kWait; }

void collect_reads(Memory& memory, const Slice& slice, int step, std::vector<int>& hazards) {
  memory[{slice.rank, slice.space}].update(slice.begin, slice.end, [&](int64_t, int64_t, LastAccesses& last) {
    if (last.writer >= 0) hazards.push_back(last.writer);
    last.readers.push_back(step);
  });
}

void collect_writes(Memory& memory, const Slice& slice, int step, std::vector<int>& hazards) {
  if (slice.begin >= slice.end) return;
  auto& space = memory[{slice.rank, slice.space}];
  space.update(slice.begin, slice.end, [&](int64_t, int64_t, LastAccesses& last) {
    if (last.writer >= 0) hazards.push_back(last.writer);
    hazards.insert(hazards.end(), last.readers.begin(), last.readers.end());
  });
  space.assign(slice.begin, slice.end, LastAccesses{step, {}});
}

// Transitive reduction keeps, for each step, the last step of each lane that is done before it starts. Where this needs
// more entries than the limit, only the edges that a lane itself implies are left out.
constexpr size_t kMaxReachEntries = size_t{1} << 24;

// Leaves out the edges that other edges imply. Takes the steps in order.
class EdgeReduction {
 public:
  EdgeReduction(const Schedule& schedule) {
    for (const Step& step : schedule.steps)
      lane_.push_back(lanes_.try_emplace(lane_of(step), lanes_.size()).first->second);
    full_ = schedule.steps.size() * lanes_.size() <= kMaxReachEntries;
    if (full_) reach_.assign(schedule.steps.size() * lanes_.size(), -1);
    last_.assign(lanes_.size(), -1);
  }

  // Returns the earlier steps that `step` has to wait for.
  std::vector<int> edges(int step, std::vector<int> hazards) {
    if (last_[lane_[step]] >= 0) hazards.push_back(last_[lane_[step]]);
    last_[lane_[step]] = step;
    std::sort(hazards.begin(), hazards.end(), std::greater<>());
    hazards.erase(std::unique(hazards.begin(), hazards.end()), hazards.end());
    std::erase(hazards, step);
    std::vector<int> kept;
    if (full_) {
      int* reach = &reach_[step * lanes_.size()];
      for (const int earlier : hazards) {
        if (reach[lane_[earlier]] >= earlier) continue;  // a kept edge implies it
        kept.push_back(earlier);
        const int* earlier_reach = &reach_[earlier * lanes_.size()];
        for (size_t lane = 0; lane < lanes_.size(); ++lane) reach[lane] = std::max(reach[lane], earlier_reach[lane]);
        reach[lane_[earlier]] = std::max(reach[lane_[earlier]], earlier);
      }
    } else {
      std::map<size_t, int> latest;
      for (const int earlier : hazards) {
        if (latest.emplace(lane_[earlier], earlier).second) kept.push_back(earlier);
      }
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

 private:
  std::map<LaneId, size_t> lanes_;
  std::vector<size_t> lane_;  // the lane of each step
  std::vector<int> last_;     // the last step of each lane
  std::vector<int> reach_;    // steps x lanes: the last step of the lane that is done before
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
  EdgeReduction reduction(schedule);
  std::vector<std::vector<int>> edges;
  edges.reserve(schedule.steps.size());
  for (int i = 0; i < static_cast<int>(schedule.steps.size()); ++i) {
    const Step& step = schedule.steps[i];
    std::vector<int> hazards;
    for (const Slice& slice : step.sources) {
      if (!hands_over(step.kind)) collect_reads(memory, slice, i, hazards);
    }
    // What a step hands over counts as written: no access of it may pass the step.
    for (const Slice& slice : hands_over(step.kind) ? step.sources : step.targets) {
      collect_writes(memory, slice, i, hazards);
    }
    edges.push_back(reduction.edges(i, std::move(hazards)));
  }
  return edges;
}

}  // namespace herd
