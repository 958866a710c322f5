#include "herd/schedule/traffic.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "herd/schedule/step_dependencies.h"
#include "herd/schedule/structure_internal.h"

namespace herd {

int64_t bytes_sent(const Schedule& s) {
  int64_t elements = 0;
  for (const Step& step : s.steps) {
    if (step.kind == StepKind::kSend) elements += step.sources[0].size();
    if (step.kind != StepKind::kCopy && step.kind != StepKind::kReduce) continue;
    for (const auto* slices : {&step.sources, &step.targets}) {
      for (const Slice& slice : *slices) elements += slice.rank != s.self ? slice.size() : 0;
    }
  }
  return elements * size_of(s.dtype);
}

int num_rounds(std::span<const Schedule> all) {
  const auto partners = match_steps(all);
  const size_t n = all.size();
  // `rounds` counts the rounds before each step; `missing` counts the steps that it still waits for.
  std::vector<std::vector<int>> rounds(n), missing(n);
  std::vector<std::vector<std::vector<int>>> followers(n);
  std::vector<std::pair<size_t, int>> ready;
  const auto waits_for_peer = [](StepKind kind) {
    return kind == StepKind::kReceive || kind == StepKind::kReceiveReduce || kind == StepKind::kWait;
  };
  for (size_t rank = 0; rank < n; ++rank) {
    const auto dependencies = derive_dependencies(all[rank]);
    const size_t steps = dependencies.size();
    rounds[rank].assign(steps, 0);
    followers[rank].resize(steps);
    for (size_t i = 0; i < steps; ++i) {
      for (const int earlier : dependencies[i])
        followers[rank][static_cast<size_t>(earlier)].push_back(static_cast<int>(i));
      missing[rank].push_back(static_cast<int>(dependencies[i].size()) + waits_for_peer(all[rank].steps[i].kind));
      if (missing[rank][i] == 0) ready.push_back({rank, static_cast<int>(i)});
    }
  }
  int max_round = 0;
  const auto release = [&](size_t rank, int step, int round) {
    const auto at = static_cast<size_t>(step);
    rounds[rank][at] = std::max(rounds[rank][at], round);
    if (--missing[rank][at] == 0) ready.push_back({rank, step});
  };
  while (!ready.empty()) {
    const auto [rank, step] = ready.back();
    ready.pop_back();
    const auto at = static_cast<size_t>(step);
    const Step& current = all[rank].steps[at];
    const int round = rounds[rank][at];
    max_round = std::max(max_round, round);
    for (const int later : followers[rank][at]) release(rank, later, round);
    if (current.kind == StepKind::kSend || current.kind == StepKind::kSignal) {
      release(static_cast<size_t>(current.peer), partners[rank][at], round + 1);
    }
  }
  return max_round;
}

int num_messages_and_signals(const Schedule& s) {
  int messages = 0;
  for (const Step& step : s.steps) messages += step.kind == StepKind::kSend || step.kind == StepKind::kSignal;
  return messages;
}

}  // namespace herd
