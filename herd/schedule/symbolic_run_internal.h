// Runs some operations of all ranks on symbols, each step as soon as it may. The order does not matter: clocks find
// races, and without races the results are the same in any order. symbolic_run.cpp moves the steps. symbolic_values.cpp
// says what they compute and what the user must find. Borrows the schedules. Threads: one at a time.
#pragma once

#include <deque>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "herd/schedule/symbolic_memory_internal.h"

namespace herd {

inline constexpr size_t kMaxFindings = 8;  // findings after which a run stops

class SymbolicRun {
 public:
  explicit SymbolicRun(std::span<const Schedule> all);  // REQUIRES that check_structure() finds nothing
  std::vector<Finding> run();                           // returns what is wrong; call it once

 private:
  enum class Progress : uint8_t { kBlocked, kArrived, kDone };

  struct State {
    std::vector<std::vector<int>> after;   // steps that wait for this one
    std::vector<std::vector<int>> before;  // steps that this one waits for
    std::vector<int> lane;                 // by step, its lane among those of all ranks
    int user_lane = 0;                     // lane of what the user does between operations
    // The next six describe the operation in progress.
    int operation = -1;                    // its number; -1 before the first
    std::vector<int> missing;              // by step, how many dependencies are not done yet
    std::vector<Progress> progress;        // by step
    std::vector<std::vector<int>> clocks;  // by step
    std::vector<int> begin_clock;          // clock at which the operation began
    int left = 0;                          // steps that are not done yet
    // By wait step, the clocks of signals that have come and not been waited for, first in, first out.
    std::vector<std::vector<std::vector<int>>> arrived;
  };

  static bool uses_stage(std::span<const Schedule> all);
  void find_meetings();
  void prepare();
  void report(Rank rank, int step, const std::string& what);
  static void join(std::vector<int>& into, const std::vector<int>& other);
  // Does what the user does between two operations: reads the results, and rewrites what it owns.
  void begin_operation(Rank rank);
  void rewrite(const SymbolicEvent& event);
  void check_everyone_began(Rank rank);
  void check_results(const SymbolicEvent& event);
  // Reports ranks that have added the same element in another order.
  void check_same_bits();
  // Runs a step, or as much of it as may run, when all that it waits for on its own rank is done.
  void arrive(Rank rank, int step);
  void try_wait(Rank rank, int step);
  // Moves a message when both ends have arrived, as the strictest transport does.
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
  int n_;                                // number of ranks
  std::vector<std::vector<int>> meets_;  // by rank and step, the peer's step that it meets (match_steps())
  Symbols symbols_;
  SymbolicMemory memory_;
  std::vector<int> meeting_;   // by rank; ranks of the same number must hear from each other; -1 = from nobody
  int operations_;             // operations that run back to back
  int num_lanes_ = 0;          // lanes of all ranks
  std::vector<int> ticks_;     // by lane, its events so far
  std::vector<State> states_;  // by rank
  std::deque<std::pair<Rank, int>> ready_;  // (rank, step) whose dependencies are done
  std::vector<Sum> sums_;                   // complete sums that ranks have ended the first operation with
  std::set<std::tuple<Rank, int, std::string>> reported_;  // findings so far, so that each is made once
  std::vector<Finding> findings_;
};

}  // namespace herd
