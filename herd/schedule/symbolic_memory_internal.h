// Holds the memory of all ranks while a schedule runs on symbols: what each element holds, and which events touched it.
// So it finds two accesses that no order separates. Threads: one at a time.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "herd/schedule/interval_map.h"
#include "herd/schedule/symbols_internal.h"
#include "herd/schedule/verify_schedule.h"

namespace herd {

// An event is a point in one lane of one rank.
struct SymbolicEvent {
  int lane = -1;  // index among the lanes of all ranks
  int tick = 0;   // 1, 2, .. within the lane
  Rank rank = -1;
  int step = -1;                            // index of the step; -1 = the user, between operations
  int operation = 0;                        // number of the operation
  const std::vector<int>* clock = nullptr;  // by lane, how many of its events are surely before this one; borrowed
};

// Holds elements [begin, end) of a slice, counted from the slice's begin, which have one symbol.
struct SymbolicPiece {
  int64_t begin = 0;
  int64_t end = 0;
  SymbolId symbol = kNoSymbol;
  int64_t first = 0;  // element of the message that lies at `begin`
};

class SymbolicMemory {
 public:
  // Gets an event, and what it does wrong.
  using Report = std::function<void(const SymbolicEvent&, const std::string&)>;

  SymbolicMemory(int num_ranks, Report report) : spaces_(num_ranks * kSpaces), report_(std::move(report)) {}

  // Returns the slice's pieces in order. Reports a write that no order separates from this read.
  std::vector<SymbolicPiece> read(const SymbolicEvent& event, const Slice& slice);
  // Replaces the slice by pieces that cover it. Reports reads and writes that no order separates from this write.
  void write(const SymbolicEvent& event, const Slice& slice, std::span<const SymbolicPiece> pieces);

 private:
  struct Access {
    int lane = -1;
    int tick = 0;
    Rank rank = -1;
    int step = -1;
  };
  struct Cell {
    SymbolId symbol = kNoSymbol;
    int64_t shift = 0;            // element of the message minus element of the space
    Access writer;                // the last write
    std::vector<Access> readers;  // reads since then
  };
  static constexpr int kSpaces = 5;  // spaces of a rank; operations use two kStage by turns

  IntervalMap<Cell>& space(const SymbolicEvent& event, const Slice& slice);
  void check_order(const SymbolicEvent& event, const Access& before, const Slice& slice, const char* what);

  std::vector<IntervalMap<Cell>> spaces_;
  Report report_;
};

}  // namespace herd
