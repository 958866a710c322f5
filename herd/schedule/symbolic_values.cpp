#include <algorithm>

#include "herd/schedule/meaning.h"
#include "herd/schedule/schedule_names.h"
#include "herd/schedule/symbolic_run_internal.h"

namespace herd {

void SymbolicRun::rewrite(const SymbolicEvent& event) {
  const Schedule& s = all_[event.rank];
  for (const Space space : {Space::kInput, Space::kOutput, Space::kScratch}) {
    const int64_t size = space_size(s, event.rank, space);
    if (size > 0)
      memory_.write(event, {event.rank, space, 0, size}, std::vector<SymbolicPiece>{{0, size, kNoSymbol, 0}});
  }
  const SymbolId own_symbol = symbols_.contribution(event.rank, states_[event.rank].operation);
  for (const MessagePiece& initial : initial_contributions(s, event.rank)) {
    if (initial.range.size() == 0) continue;
    memory_.write(event, {event.rank, initial.space, initial.range.begin, initial.range.end},
                  std::vector<SymbolicPiece>{{0, initial.range.size(), own_symbol, initial.message_begin}});
  }
}

void SymbolicRun::check_everyone_began(Rank rank) {
  if (meeting_[rank] < 0) return;
  for (Rank peer = 0; peer < n_; ++peer) {
    if (meeting_[peer] == meeting_[rank] && peer != rank &&
        states_[rank].begin_clock[states_[peer].user_lane] <= states_[rank].operation) {
      report(rank, -1, "can be done before rank " + std::to_string(peer) + " has begun");
    }
  }
}

void SymbolicRun::check_results(const SymbolicEvent& event) {
  const Schedule& s = all_[event.rank];
  for (const MessagePiece& place : expected_results(s, event.rank)) {
    const Slice slice{event.rank, place.space, place.range.begin, place.range.end};
    for (const SymbolicPiece& piece : memory_.read(event, slice)) {
      const Slice part{event.rank, place.space, slice.begin + piece.begin, slice.begin + piece.end};
      const bool right_place = piece.first == place.message_begin + piece.begin;
      const bool right = place.contributor == kEveryRank
                             ? symbols_.is_full(piece.symbol) && (n_ == 1 || symbols_.is_complete(piece.symbol))
                             : piece.symbol == symbols_.contribution(place.contributor, event.operation);
      if (!right) {
        report(event.rank, -1,
               "ends with " + symbols_.describe(piece.symbol) + " in " + describe(part) + ", not " +
                   (place.contributor == kEveryRank ? "the complete sum"
                                                    : "the input of rank " + std::to_string(place.contributor)));
      } else if (symbols_.operation_of(piece.symbol) != event.operation) {
        report(event.rank, -1, "ends with values of an earlier operation in " + describe(part));
      } else if (!right_place) {
        report(event.rank, -1,
               "ends with element " + std::to_string(piece.first) + " of the message in " + describe(part) +
                   ", where element " + std::to_string(place.message_begin + piece.begin) + " belongs");
      } else if (place.contributor == kEveryRank && event.operation == 0) {
        sums_.push_back({place.message_begin + piece.begin, place.message_begin + piece.end, piece.symbol, event.rank});
      }
    }
  }
}

void SymbolicRun::check_same_bits() {
  IntervalMap<std::pair<SymbolId, Rank>> known;
  for (const auto& [begin, end, symbol, rank] : sums_) {
    known.update(begin, end, [&, s = symbol, r = rank](int64_t from, int64_t to, std::pair<SymbolId, Rank>& seen) {
      if (seen.first == kNoSymbol) seen = {s, r};
      if (seen.first != s) {
        report(r, -1,
               "adds elements [" + std::to_string(from) + "," + std::to_string(to) + ") in another order than rank " +
                   std::to_string(seen.second) + ", so bits may differ");
      }
    });
  }
}

std::vector<SymbolicPiece> SymbolicRun::add(Rank rank, int step, const std::vector<std::vector<SymbolicPiece>>& terms) {
  std::vector<SymbolicPiece> sums;
  std::vector<size_t> at(terms.size(), 0);
  const int64_t size = terms[0].empty() ? 0 : terms[0].back().end;
  for (int64_t begin = 0; begin < size;) {
    int64_t end = size;
    std::vector<SymbolId> ids;
    int64_t first = -1;
    std::string rule;
    for (size_t t = 0; t < terms.size(); ++t) {
      while (terms[t][at[t]].end <= begin) ++at[t];
      const SymbolicPiece& piece = terms[t][at[t]];
      const int64_t element = piece.first + begin - piece.begin;
      end = std::min(end, piece.end);
      ids.push_back(piece.symbol);
      if (t == 0) first = element;
      if (piece.symbol > kUnknownSymbol && first != element) {
        rule = "adds element " + std::to_string(element) + " of the message to element " + std::to_string(first);
      } else if (piece.symbol > kUnknownSymbol && symbols_.operation_of(piece.symbol) != states_[rank].operation) {
        rule = "adds a value of an earlier operation";
      }
    }
    SymbolId sum = kUnknownSymbol;
    if (rule.empty()) sum = symbols_.sum(ids, all_[rank].steps[step].completes, rule);
    if (!rule.empty()) report(rank, step, rule);
    sums.push_back({begin, end, sum, first});
    begin = end;
  }
  return sums;
}

std::vector<SymbolicPiece> SymbolicRun::read_defined(Rank rank, int step, const Slice& slice) {
  std::vector<SymbolicPiece> pieces = memory_.read(event_of(rank, step), slice);
  check_defined(rank, step, slice, pieces);
  return pieces;
}

void SymbolicRun::check_defined(Rank rank, int step, const Slice& slice, const std::vector<SymbolicPiece>& pieces) {
  for (const SymbolicPiece& piece : pieces) {
    const Slice part{slice.rank, slice.space, slice.begin + piece.begin, slice.begin + piece.end};
    if (piece.symbol == kNoSymbol) {
      report(rank, step, "reads " + describe(part) + ", which holds nothing");
    } else if (piece.symbol != kUnknownSymbol && symbols_.operation_of(piece.symbol) != states_[rank].operation) {
      report(rank, step, "reads " + describe(part) + ", which holds values of an earlier operation");
    }
  }
}

}  // namespace herd
