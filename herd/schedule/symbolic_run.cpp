#include <algorithm>
#include <map>

#include "herd/schedule/schedule_names.h"
#include "herd/schedule/step_dependencies.h"
#include "herd/schedule/structure_internal.h"
#include "herd/schedule/symbolic_run_internal.h"

namespace herd {

SymbolicRun::SymbolicRun(std::span<const Schedule> all)
    : all_(all),
      n_(static_cast<int>(all.size())),
      meets_(match_steps(all)),
      symbols_(n_),
      memory_(n_,
              [this](const SymbolicEvent& event, const std::string& what) { report(event.rank, event.step, what); }),
      meeting_(all.size(), -1),
      operations_(uses_stage(all) ? 3 : 2) {
  find_meetings();
  prepare();
}

// All ranks of a barrier form one meeting. In other collectives, the ranks that touch each other's stage memory do,
// directly or through others.
void SymbolicRun::find_meetings() {
  if (all_[0].collective == Collective::kBarrier) meeting_.assign(all_.size(), 0);
  const auto merge = [this](Rank a, Rank b) {
    for (const Rank rank : {a, b}) {
      if (meeting_[rank] < 0) meeting_[rank] = rank;
    }
    const int from = std::max(meeting_[a], meeting_[b]), to = std::min(meeting_[a], meeting_[b]);
    if (from != to) std::replace(meeting_.begin(), meeting_.end(), from, to);
  };
  for (const Schedule& s : all_) {
    for (const Step& step : s.steps) {
      for (const auto* slices : {&step.sources, &step.targets}) {
        for (const Slice& slice : *slices) {
          if (slice.space == Space::kStage && meeting_[slice.rank] != meeting_[s.self]) merge(s.self, slice.rank);
          if (slice.space == Space::kStage && meeting_[s.self] < 0) merge(s.self, slice.rank);
        }
      }
    }
  }
}

std::vector<Finding> SymbolicRun::run() {
  for (Rank rank = 0; rank < n_; ++rank) begin_operation(rank);
  while (!ready_.empty() && findings_.size() < kMaxFindings) {
    const auto [rank, step] = ready_.front();
    ready_.pop_front();
    arrive(rank, step);
  }
  if (findings_.empty()) report_stuck();
  if (findings_.empty()) check_same_bits();
  return std::move(findings_);
}

bool SymbolicRun::uses_stage(std::span<const Schedule> all) {
  const auto staged = [](const std::vector<Slice>& slices) {
    return std::any_of(slices.begin(), slices.end(), [](const Slice& s) { return s.space == Space::kStage; });
  };
  for (const Schedule& s : all) {
    for (const Step& step : s.steps) {
      if (staged(step.sources) || staged(step.targets)) return true;
    }
  }
  return false;
}

void SymbolicRun::prepare() {
  states_.resize(n_);
  for (Rank rank = 0; rank < n_; ++rank) {
    State& state = states_[rank];
    const auto& steps = all_[rank].steps;
    state.before = derive_dependencies(all_[rank]);
    state.after.resize(steps.size());
    state.arrived.resize(steps.size());
    state.user_lane = num_lanes_++;
    std::map<LaneId, int> lanes;
    for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
      for (const int earlier : state.before[i]) state.after[earlier].push_back(i);
      const auto [at, added] = lanes.try_emplace(lane_of(steps[i]), num_lanes_);
      num_lanes_ += added;
      state.lane.push_back(at->second);
    }
  }
  ticks_.assign(num_lanes_, 0);
  for (State& state : states_) state.begin_clock.assign(num_lanes_, 0);
}

void SymbolicRun::report(Rank rank, int step, const std::string& what) {
  const std::string text = step < 0 ? what : describe(all_[rank].steps[step]) + ": " + what;
  if (findings_.size() < kMaxFindings && reported_.insert({rank, step, text}).second) {
    findings_.push_back({rank, step, text});
  }
}

void SymbolicRun::join(std::vector<int>& into, const std::vector<int>& other) {
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void SymbolicRun::begin_operation(Rank rank) {
  State& state = states_[rank];
  for (const auto& clock : state.clocks) join(state.begin_clock, clock);
  if (state.operation >= 0) check_everyone_began(rank);
  const int tick = ++ticks_[state.user_lane];
  state.begin_clock[state.user_lane] = tick;
  const SymbolicEvent event{state.user_lane, tick, rank, -1, state.operation, &state.begin_clock};
  if (state.operation >= 0) check_results(event);
  ++state.operation;
  rewrite(event);
  if (state.operation == operations_) return;

  const auto& steps = all_[rank].steps;
  state.left = static_cast<int>(steps.size());
  state.progress.assign(steps.size(), Progress::kBlocked);
  state.clocks.assign(steps.size(), state.begin_clock);
  state.missing.clear();
  for (int i = 0; i < state.left; ++i) {
    state.missing.push_back(static_cast<int>(state.before[i].size()));
    if (state.missing[i] == 0) ready_.push_back({rank, i});
  }
  if (state.left == 0) begin_operation(rank);
}

void SymbolicRun::arrive(Rank rank, int step) {
  State& state = states_[rank];
  state.progress[step] = Progress::kArrived;
  for (const int earlier : state.before[step]) join(state.clocks[step], state.clocks[earlier]);
  const Step& current = all_[rank].steps[step];
  const int partner_step = meets_[rank][step];
  switch (current.kind) {
    case StepKind::kCopy:
    case StepKind::kReduce:
      execute_local(rank, step);
      break;
    case StepKind::kSignal: {
      tick(rank, step);
      states_[current.peer].arrived[partner_step].push_back(state.clocks[step]);
      finish(rank, step);
      try_wait(current.peer, partner_step);
      break;
    }
    case StepKind::kWait:
      try_wait(rank, step);
      break;
    case StepKind::kSend:
      try_message(rank, step, current.peer, partner_step);
      break;
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      try_message(current.peer, partner_step, rank, step);
      break;
  }
}

void SymbolicRun::try_wait(Rank rank, int step) {
  State& state = states_[rank];
  if (state.left == 0 || state.progress.empty() || state.progress[step] != Progress::kArrived) return;
  if (state.arrived[step].empty()) return;
  join(state.clocks[step], state.arrived[step].front());
  state.arrived[step].erase(state.arrived[step].begin());
  tick(rank, step);
  finish(rank, step);
}

void SymbolicRun::try_message(Rank from, int send, Rank to, int receive) {
  State &sender = states_[from], &receiver = states_[to];
  if (sender.operation != receiver.operation || sender.operation == operations_) return;
  if (sender.progress[send] != Progress::kArrived || receiver.progress[receive] != Progress::kArrived) return;
  tick(from, send);
  const Step& out = all_[from].steps[send];
  const Step& in = all_[to].steps[receive];
  const std::vector<SymbolicPiece> message = memory_.read(event_of(from, send), out.sources[0]);
  check_defined(from, send, out.sources[0], message);
  join(receiver.clocks[receive], sender.clocks[send]);  // a send does not wait: a transport may buffer
  tick(to, receive);
  if (in.kind == StepKind::kReceive) {
    memory_.write(event_of(to, receive), in.targets[0], message);
  } else {
    const std::vector<SymbolicPiece> own_pieces = read_defined(to, receive, in.sources[0]);
    memory_.write(event_of(to, receive), in.targets[0], add(to, receive, {own_pieces, message}));
  }
  finish(from, send);
  finish(to, receive);
}

void SymbolicRun::execute_local(Rank rank, int step) {
  tick(rank, step);
  const Step& current = all_[rank].steps[step];
  std::vector<std::vector<SymbolicPiece>> terms;
  for (const Slice& source : current.sources) terms.push_back(read_defined(rank, step, source));
  const std::vector<SymbolicPiece> result = current.kind == StepKind::kCopy ? terms[0] : add(rank, step, terms);
  for (const Slice& target : current.targets) memory_.write(event_of(rank, step), target, result);
  finish(rank, step);
}

void SymbolicRun::tick(Rank rank, int step) {
  State& state = states_[rank];
  const int lane = state.lane[step];
  state.clocks[step][lane] = ++ticks_[lane];
}

SymbolicEvent SymbolicRun::event_of(Rank rank, int step) {
  State& state = states_[rank];
  const int lane = state.lane[step];
  return {lane, state.clocks[step][lane], rank, step, state.operation, &state.clocks[step]};
}

void SymbolicRun::finish(Rank rank, int step) {
  State& state = states_[rank];
  state.progress[step] = Progress::kDone;
  for (const int later : state.after[step]) {
    if (--state.missing[later] == 0) ready_.push_back({rank, later});
  }
  if (--state.left == 0) begin_operation(rank);
}

void SymbolicRun::report_stuck() {
  for (Rank rank = 0; rank < n_; ++rank) {
    const State& state = states_[rank];
    if (state.operation == operations_) continue;
    for (int i = 0; i < static_cast<int>(state.progress.size()); ++i) {
      if (state.progress[i] != Progress::kArrived) continue;
      report(rank, i, "waits for rank " + std::to_string(all_[rank].steps[i].peer) + " for ever (deadlock)");
      break;
    }
  }
}

}  // namespace herd
