// Runs some operations of all ranks on symbols, each step as soon as it may. The order does not matter: races are found
// by clocks, and what is computed without races is the same in any order. symbolic_run.cpp moves the steps,
// symbolic_values.cpp says what they compute and what the user must find. Threads: one at a time.
#pragma once

#include <deque>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "herd/schedule/symbolic_memory_internal.h"

namespace herd {

inline constexpr size_t kMaxFindings = 8;

class SymbolicRun {
 public:
  explicit SymbolicRun(std::span<const Schedule> all);
  std::vector<Finding> run();

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

  static bool uses_stage(std::span<const Schedule> all);
  void find_meetings();
  void prepare();
  void report(Rank rank, int step, const std::string& what);
  static void join(std::vector<int>& into, const std::vector<int>& other);
  // The user between two operations: reads the results, rewrites what it owns.
  void begin_operation(Rank rank);
  void rewrite(const SymbolicEvent& event);
  void check_everyone_began(Rank rank);
  void check_results(const SymbolicEvent& event);
  // Ranks that hold the sum of an element must have added it in the same order.
  void check_same_bits();
  // All that the step waits for on its own rank is done.
  void arrive(Rank rank, int step);
  void try_wait(Rank rank, int step);
  // A message moves when both ends have come: the strictest transport there is.
  void try_message(Rank from, int send, Rank to, int receive);
  void execute_local(Rank rank, int step);
  std::vector<SymbolicPiece> add(Rank rank, int step, const std::vector<std::vector<SymbolicPiece>>& terms);
  std::vector<SymbolicPiece> read_defined(Rank rank, int step, const Slice& slice);
  void check_defined(Rank rank, int step, const Slice& slice, const std::vector<SymbolicPiece>& pieces);
  void tick(Rank rank, int step);
  SymbolicEvent event_of(Rank rank, int step);
  void finish(Rank rank, int step);
  void report_stuck();

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
  std::vector<int> meeting_;  // ranks of the same number have to hear from each other; -1: from nobody
  int operations_;
  int num_lanes_ = 0;
  std::vector<int> ticks_;
  std::vector<State> states_;
  std::deque<std::pair<Rank, int>> ready_;
  std::vector<Sum> sums_;
  std::set<std::tuple<Rank, int, std::string>> reported_;
  std::vector<Finding> findings_;
};

}  // namespace herd
