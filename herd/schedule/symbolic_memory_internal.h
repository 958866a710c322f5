// Memory of all ranks while a schedule runs on symbols: what each element holds, and which events touched it, so that
// two accesses without an order between them are found. Threads: plain data.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "herd/schedule/interval_map.h"
#include "herd/schedule/symbols_internal.h"
#include "herd/schedule/verify_schedule.h"

namespace herd {

// A point in one lane of one rank; `clock` says, per lane of all ranks, how many of its events are surely before it.
struct SymbolicEvent {
  int lane = -1;
  int tick = 0;  // 1, 2, .. within the lane
  Rank rank = -1;
  int step = -1;  // -1: the user, between operations
  int operation = 0;
  const std::vector<int>* clock = nullptr;
};

struct SymbolicPiece {
  int64_t begin = 0;  // relative to the slice
  int64_t end = 0;
  SymbolId symbol = kNoSymbol;
  int64_t first = 0;  // element of the message at `begin`
};

class SymbolicMemory {
 public:
  using Report = std::function<void(const SymbolicEvent&, const std::string&)>;

  SymbolicMemory(int num_ranks, Report report) : spaces_(num_ranks * kSpaces), report_(std::move(report)) {}

  std::vector<SymbolicPiece> read(const SymbolicEvent& event, const Slice& slice);
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
    int64_t shift = 0;  // element of the message minus place in memory
    Access writer;
    std::vector<Access> readers;  // since the last write
  };
  static constexpr int kSpaces = 5;  // kStage twice

  IntervalMap<Cell>& space(const SymbolicEvent& event, const Slice& slice);
  void check_order(const SymbolicEvent& event, const Access& before, const Slice& slice, const char* what);

  std::vector<IntervalMap<Cell>> spaces_;
  Report report_;
};

}  // namespace herd
