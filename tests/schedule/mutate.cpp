#include "tests/schedule/mutate.h"

#include "herd/schedule/schedule_names.h"

namespace herd::testing_support {
namespace {

Slice& slice_of(Step& step, int index) {
  const int sources = static_cast<int>(step.sources.size());
  return index < sources ? step.sources[index] : step.targets[index - sources];
}

const char* kind_name(MutationKind kind) {
  switch (kind) {
    case MutationKind::kDrop:
      return "drop";
    case MutationKind::kDuplicate:
      return "duplicate";
    case MutationKind::kSwapWithNext:
      return "swap with next";
    case MutationKind::kWrongPeer:
      return "wrong peer";
    case MutationKind::kShiftSlice:
      return "shift slice";
    case MutationKind::kShrinkSlice:
      return "shrink slice";
    case MutationKind::kFlipCompletes:
      return "flip completes";
  }
  return "";
}

}  // namespace

std::vector<Mutation> all_mutations(std::span<const Schedule> all_ranks) {
  std::vector<Mutation> mutations;
  for (const Schedule& s : all_ranks) {
    const int steps = static_cast<int>(s.steps.size());
    for (int i = 0; i < steps; ++i) {
      const Step& step = s.steps[i];
      mutations.push_back({MutationKind::kDrop, s.self, i});
      mutations.push_back({MutationKind::kDuplicate, s.self, i});
      if (i + 1 < steps && !(step == s.steps[i + 1])) mutations.push_back({MutationKind::kSwapWithNext, s.self, i});
      if (step.peer >= 0) mutations.push_back({MutationKind::kWrongPeer, s.self, i});
      for (int k = 0; k < static_cast<int>(step.sources.size() + step.targets.size()); ++k) {
        mutations.push_back({MutationKind::kShiftSlice, s.self, i, k});
        mutations.push_back({MutationKind::kShrinkSlice, s.self, i, k});
      }
      mutations.push_back({MutationKind::kFlipCompletes, s.self, i});
    }
  }
  return mutations;
}

std::vector<Schedule> mutated(std::span<const Schedule> all_ranks, const Mutation& m) {
  std::vector<Schedule> all(all_ranks.begin(), all_ranks.end());
  auto& steps = all[m.rank].steps;
  Step& step = steps[m.step];
  switch (m.kind) {
    case MutationKind::kDrop:
      steps.erase(steps.begin() + m.step);
      break;
    case MutationKind::kDuplicate: {
      const Step copy = step;
      steps.insert(steps.begin() + m.step, copy);
      break;
    }
    case MutationKind::kSwapWithNext:
      std::swap(steps[m.step], steps[m.step + 1]);
      break;
    case MutationKind::kWrongPeer:
      step.peer = (step.peer + 1) % all[m.rank].num_ranks;
      break;
    case MutationKind::kShiftSlice: {
      Slice& slice = slice_of(step, m.slice);
      const int64_t by = slice.begin > 0 ? -1 : 1;
      slice.begin += by;
      slice.end += by;
      break;
    }
    case MutationKind::kShrinkSlice:
      --slice_of(step, m.slice).end;
      break;
    case MutationKind::kFlipCompletes:
      step.completes = !step.completes;
      break;
  }
  return all;
}

std::string describe(std::span<const Schedule> all_ranks, const Mutation& m) {
  return "rank " + std::to_string(m.rank) + " step " + std::to_string(m.step) + " " + kind_name(m.kind) + " " +
         std::to_string(m.slice) + ": " + herd::describe(all_ranks[m.rank].steps[m.step]);
}

}  // namespace herd::testing_support
