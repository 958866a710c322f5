#include "herd/schedule/verify.h"

#include <algorithm>
#include <deque>
#include <set>

#include "herd/schedule/dependencies.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/names.h"
#include "herd/schedule/structure_internal.h"
#include "herd/schedule/symbolic_memory_internal.h"

namespace herd {
namespace verify_detail {
namespace {

constexpr size_t kMaxFindings = 8;

// Runs `operations` operations of all ranks, each step as soon as it may: the order does not matter, since races are
// found by clocks, and what is computed without races is the same in any order.
class SymbolicRun {
 public:
  explicit SymbolicRun(std::span<const Schedule> all)
      : all_(all),
        n_(static_cast<int>(all.size())),
        meets_(match_steps(all)),
        symbols_(n_),
        memory_(n_, [this](const Event& event, const std::string& what) { report(event.rank, event.step, what); }),
        everyone_meets_(all[0].collective == Collective::kBarrier || uses_stage(all)),
        operations_(uses_stage(all) ? 3 : 2) {
    prepare();
  }

  std::vector<Finding> run() {
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

 private:
  enum class Progress : uint8_t { kBlocked, kArrived, kDone };

  struct State {
    std::vector<std::vector<int>> after;   // steps that wait for this one
    std::vector<std::vector<int>> before;  // steps that this one waits for
    std::vector<int> lane;                 // of each step, among the lanes of all ranks
    int user_lane = 0;
    // of the operation in progress
    int operation = -1;
    std::vector<int> missing;  // dependencies still to come, per step
    std::vector<Progress> progress;
    std::vector<std::vector<int>> clocks;  // per step
    std::vector<int> begin_clock;
    int left = 0;
    // signals that came before this rank began their operation
    std::vector<std::vector<std::vector<int>>> arrived;  // per step: clocks, first in, first out
  };

  static bool uses_stage(std::span<const Schedule> all) {
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

  void prepare() {
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

  void report(Rank rank, int step, const std::string& what) {
    const std::string text = step < 0 ? what : describe(all_[rank].steps[step]) + ": " + what;
    if (findings_.size() < kMaxFindings && reported_.insert({rank, step, text}).second) {
      findings_.push_back({rank, step, text});
    }
  }

  static void join(std::vector<int>& into, const std::vector<int>& other) {
    for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
  }

  // The user between two operations: reads the results, rewrites what it owns.
  void begin_operation(Rank rank) {
    State& state = states_[rank];
    for (const auto& clock : state.clocks) join(state.begin_clock, clock);
    if (state.operation >= 0) check_everyone_began(rank);
    const int tick = ++ticks_[state.user_lane];
    state.begin_clock[state.user_lane] = tick;
    const Event event{state.user_lane, tick, rank, -1, state.operation, &state.begin_clock};
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

  void rewrite(const Event& event) {
    const Schedule& s = all_[event.rank];
    for (const Space space : {Space::kInput, Space::kOutput, Space::kScratch}) {
      const int64_t size = space_size(s, event.rank, space);
      if (size > 0) memory_.write(event, {event.rank, space, 0, size}, std::vector<Piece>{{0, size, kNothing, 0}});
    }
    const SymbolId own = symbols_.contribution(event.rank, states_[event.rank].operation);
    for (const Placed& given : given_to(s, event.rank)) {
      if (given.range.size() == 0) continue;
      memory_.write(event, {event.rank, given.space, given.range.begin, given.range.end},
                    std::vector<Piece>{{0, given.range.size(), own, given.first}});
    }
  }

  void check_everyone_began(Rank rank) {
    if (!everyone_meets_) return;
    for (Rank peer = 0; peer < n_; ++peer) {
      if (peer != rank && states_[rank].begin_clock[states_[peer].user_lane] <= states_[rank].operation) {
        report(rank, -1, "can be done before rank " + std::to_string(peer) + " has begun");
      }
    }
  }

  void check_results(const Event& event) {
    const Schedule& s = all_[event.rank];
    for (const Placed& place : expected_from(s, event.rank)) {
      const Slice slice{event.rank, place.space, place.range.begin, place.range.end};
      for (const Piece& piece : memory_.read(event, slice)) {
        const Slice part{event.rank, place.space, slice.begin + piece.begin, slice.begin + piece.end};
        const bool right_place = piece.first == place.first + piece.begin;
        const bool right = place.of == kEveryRank
                               ? symbols_.is_full(piece.symbol) && (n_ == 1 || symbols_.is_complete(piece.symbol))
                               : piece.symbol == symbols_.contribution(place.of, event.operation);
        if (!right) {
          report(event.rank, -1,
                 "ends with " + symbols_.describe(piece.symbol) + " in " + describe(part) + ", not " +
                     (place.of == kEveryRank ? "the complete sum" : "the input of rank " + std::to_string(place.of)));
        } else if (symbols_.operation_of(piece.symbol) != event.operation) {
          report(event.rank, -1, "ends with values of an earlier operation in " + describe(part));
        } else if (!right_place) {
          report(event.rank, -1,
                 "ends with element " + std::to_string(piece.first) + " of the message in " + describe(part) +
                     ", where element " + std::to_string(place.first + piece.begin) + " belongs");
        } else if (place.of == kEveryRank && event.operation == 0) {
          sums_.push_back({place.first + piece.begin, place.first + piece.end, piece.symbol, event.rank});
        }
      }
    }
  }

  // Ranks that hold the sum of an element must have added it in the same order.
  void check_same_bits() {
    IntervalMap<std::pair<SymbolId, Rank>> known;
    for (const auto& [begin, end, symbol, rank] : sums_) {
      known.update(begin, end, [&, s = symbol, r = rank](int64_t from, int64_t to, std::pair<SymbolId, Rank>& seen) {
        if (seen.first == kNothing) seen = {s, r};
        if (seen.first != s) {
          report(r, -1,
                 "adds elements [" + std::to_string(from) + "," + std::to_string(to) + ") in another order than rank " +
                     std::to_string(seen.second) + ", so bits may differ");
        }
      });
    }
  }

  // All that the step waits for on its own rank is done.
  void arrive(Rank rank, int step) {
    State& state = states_[rank];
    state.progress[step] = Progress::kArrived;
    for (const int earlier : state.before[step]) join(state.clocks[step], state.clocks[earlier]);
    const Step& what = all_[rank].steps[step];
    const int met = meets_[rank][step];
    switch (what.kind) {
      case StepKind::kCopy:
      case StepKind::kReduce:
        execute_local(rank, step);
        break;
      case StepKind::kSignal: {
        tick(rank, step);
        states_[what.peer].arrived[met].push_back(state.clocks[step]);
        finish(rank, step);
        try_wait(what.peer, met);
        break;
      }
      case StepKind::kWait:
        try_wait(rank, step);
        break;
      case StepKind::kSend:
        try_message(rank, step, what.peer, met);
        break;
      case StepKind::kReceive:
      case StepKind::kReceiveReduce:
        try_message(what.peer, met, rank, step);
        break;
    }
  }

  void try_wait(Rank rank, int step) {
    State& state = states_[rank];
    if (state.left == 0 || state.progress.empty() || state.progress[step] != Progress::kArrived) return;
    if (state.arrived[step].empty()) return;
    join(state.clocks[step], state.arrived[step].front());
    state.arrived[step].erase(state.arrived[step].begin());
    tick(rank, step);
    finish(rank, step);
  }

  // A message moves when both ends have come: the strictest transport there is.
  void try_message(Rank from, int send, Rank to, int receive) {
    State &sender = states_[from], &receiver = states_[to];
    if (sender.operation != receiver.operation || sender.operation == operations_) return;
    if (sender.progress[send] != Progress::kArrived || receiver.progress[receive] != Progress::kArrived) return;
    tick(from, send);
    const Step& out = all_[from].steps[send];
    const Step& in = all_[to].steps[receive];
    const std::vector<Piece> message = memory_.read(event_of(from, send), out.sources[0]);
    check_defined(from, send, out.sources[0], message);
    join(receiver.clocks[receive], sender.clocks[send]);  // not the other way: a transport may buffer
    tick(to, receive);
    if (in.kind == StepKind::kReceive) {
      memory_.write(event_of(to, receive), in.targets[0], message);
    } else {
      const std::vector<Piece> own = read_defined(to, receive, in.sources[0]);
      memory_.write(event_of(to, receive), in.targets[0], add(to, receive, {own, message}));
    }
    finish(from, send);
    finish(to, receive);
  }

  void execute_local(Rank rank, int step) {
    tick(rank, step);
    const Step& what = all_[rank].steps[step];
    std::vector<std::vector<Piece>> terms;
    for (const Slice& source : what.sources) terms.push_back(read_defined(rank, step, source));
    const std::vector<Piece> result = what.kind == StepKind::kCopy ? terms[0] : add(rank, step, terms);
    for (const Slice& target : what.targets) memory_.write(event_of(rank, step), target, result);
    finish(rank, step);
  }

  std::vector<Piece> add(Rank rank, int step, const std::vector<std::vector<Piece>>& terms) {
    std::vector<Piece> sums;
    std::vector<size_t> at(terms.size(), 0);
    const int64_t size = terms[0].empty() ? 0 : terms[0].back().end;
    for (int64_t begin = 0; begin < size;) {
      int64_t end = size;
      std::vector<SymbolId> ids;
      int64_t first = -1;
      std::string rule;
      for (size_t t = 0; t < terms.size(); ++t) {
        while (terms[t][at[t]].end <= begin) ++at[t];
        const Piece& piece = terms[t][at[t]];
        const int64_t element = piece.first + begin - piece.begin;
        end = std::min(end, piece.end);
        ids.push_back(piece.symbol);
        if (t == 0) first = element;
        if (piece.symbol > kUnknown && first != element) {
          rule = "adds element " + std::to_string(element) + " of the message to element " + std::to_string(first);
        } else if (piece.symbol > kUnknown && symbols_.operation_of(piece.symbol) != states_[rank].operation) {
          rule = "adds a value of an earlier operation";
        }
      }
      SymbolId sum = kUnknown;
      if (rule.empty()) sum = symbols_.sum(ids, all_[rank].steps[step].completes, rule);
      if (!rule.empty()) report(rank, step, rule);
      sums.push_back({begin, end, sum, first});
      begin = end;
    }
    return sums;
  }

  std::vector<Piece> read_defined(Rank rank, int step, const Slice& slice) {
    std::vector<Piece> pieces = memory_.read(event_of(rank, step), slice);
    check_defined(rank, step, slice, pieces);
    return pieces;
  }

  void check_defined(Rank rank, int step, const Slice& slice, const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      const Slice part{slice.rank, slice.space, slice.begin + piece.begin, slice.begin + piece.end};
      if (piece.symbol == kNothing) {
        report(rank, step, "reads " + describe(part) + ", which holds nothing");
      } else if (piece.symbol != kUnknown && symbols_.operation_of(piece.symbol) != states_[rank].operation) {
        report(rank, step, "reads " + describe(part) + ", which holds values of an earlier operation");
      }
    }
  }

  void tick(Rank rank, int step) {
    State& state = states_[rank];
    const int lane = state.lane[step];
    state.clocks[step][lane] = ++ticks_[lane];
  }

  Event event_of(Rank rank, int step) {
    State& state = states_[rank];
    const int lane = state.lane[step];
    return {lane, state.clocks[step][lane], rank, step, state.operation, &state.clocks[step]};
  }

  void finish(Rank rank, int step) {
    State& state = states_[rank];
    state.progress[step] = Progress::kDone;
    for (const int later : state.after[step]) {
      if (--state.missing[later] == 0) ready_.push_back({rank, later});
    }
    if (--state.left == 0) begin_operation(rank);
  }

  void report_stuck() {
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

  struct Sum {
    int64_t begin, end;
    SymbolId symbol;
    Rank rank;
  };

  std::span<const Schedule> all_;
  int n_;
  std::vector<std::vector<int>> meets_;
  Symbols symbols_;
  SymbolicMemory memory_;
  bool everyone_meets_;
  int operations_;
  int num_lanes_ = 0;
  std::vector<int> ticks_;
  std::vector<State> states_;
  std::deque<std::pair<Rank, int>> ready_;
  std::vector<Sum> sums_;
  std::set<std::tuple<Rank, int, std::string>> reported_;
  std::vector<Finding> findings_;
};

}  // namespace
}  // namespace verify_detail

std::string describe(const Finding& finding) {
  std::string text;
  if (finding.rank >= 0) text += "rank " + std::to_string(finding.rank);
  if (finding.step >= 0) text += ", step " + std::to_string(finding.step);
  return text.empty() ? finding.what : text + ": " + finding.what;
}

std::vector<Finding> verify(std::span<const Schedule> all_ranks) {
  std::vector<Finding> findings = verify_detail::check_structure(all_ranks);
  if (!findings.empty()) return findings;
  return verify_detail::SymbolicRun(all_ranks).run();
}

}  // namespace herd
