#include "herd/schedule/schedule_names.h"
#include "herd/schedule/symbolic_memory_internal.h"

namespace herd {

IntervalMap<SymbolicMemory::Cell>& SymbolicMemory::space(const SymbolicEvent& event, const Slice& slice) {
  int index = static_cast<int>(slice.space);
  // Operations use the two copies of stage memory by turns.
  if (slice.space == Space::kStage) index += event.operation % 2;
  return spaces_[slice.rank * kSpaces + index];
}

void SymbolicMemory::check_order(const SymbolicEvent& event, const Access& before, const Slice& slice,
                                 const char* verb) {
  // The accesses are in order where the event's clock already counts `before`.
  if (before.lane < 0 || (*event.clock)[before.lane] >= before.tick) return;
  const std::string earlier = before.step < 0
                                  ? "the caller of rank " + std::to_string(before.rank)
                                  : "step " + std::to_string(before.step) + " of rank " + std::to_string(before.rank);
  report_(event, std::string(verb) + " " + describe(slice) + " with no order between it and " + earlier);
}

std::vector<SymbolicPiece> SymbolicMemory::read(const SymbolicEvent& event, const Slice& slice) {
  std::vector<SymbolicPiece> pieces;
  space(event, slice).update(slice.begin, slice.end, [&](int64_t begin, int64_t end, Cell& cell) {
    check_order(event, cell.writer, {slice.rank, slice.space, begin, end}, "reads");
    cell.readers.push_back({event.lane, event.tick, event.rank, event.step});
    pieces.push_back({begin - slice.begin, end - slice.begin, cell.symbol, begin + cell.shift});
  });
  return pieces;
}

void SymbolicMemory::write(const SymbolicEvent& event, const Slice& slice, std::span<const SymbolicPiece> pieces) {
  auto& cells = space(event, slice);
  cells.update(slice.begin, slice.end, [&](int64_t begin, int64_t end, Cell& cell) {
    const Slice touched{slice.rank, slice.space, begin, end};
    check_order(event, cell.writer, touched, "overwrites");
    for (const Access& reader : cell.readers) check_order(event, reader, touched, "overwrites");
  });
  for (const SymbolicPiece& piece : pieces) {
    const int64_t begin = slice.begin + piece.begin;
    cells.assign(begin, slice.begin + piece.end,
                 {piece.symbol, piece.first - begin, {event.lane, event.tick, event.rank, event.step}, {}});
  }
}

}  // namespace herd
