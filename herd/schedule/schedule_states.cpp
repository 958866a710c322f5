#include "herd/schedule/schedule_states.h"

#include <algorithm>
#include <deque>
#include <set>

#include "herd/base/check.h"
#include "herd/draw/table.h"
#include "herd/schedule/interval_map.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/schedule_names.h"
#include "herd/schedule/step_dependencies.h"
#include "herd/schedule/structure_internal.h"

namespace herd {
namespace {

constexpr int kSpaces = 4;

// What one element of memory holds: an element of the message, in the numbering of all ranks' inputs, and whose
// contributions. kNothing stands for memory that holds nothing.
struct Held {
  int64_t shift = 0;  // element of the message minus element of the space
  ScheduleStates::Cell ranks = {};
};

bool is_message(const Step& step) {
  return step.kind == StepKind::kSend || step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce;
}

bool touches_a_peer(const Step& step, Rank self) {
  const auto elsewhere = [self](const Slice& slice) { return slice.rank != self && slice.size() > 0; };
  return std::ranges::any_of(step.sources, elsewhere) || std::ranges::any_of(step.targets, elsewhere);
}

class Replay {
 public:
  explicit Replay(std::span<const Schedule> all)
      : all_(all), n_(static_cast<int>(all.size())), meets_(match_steps(all)), memory_(all.size() * kSpaces) {
    for (const Schedule& s : all_) {
      for (const MessagePiece& piece : initial_contributions(s, s.self)) {
        const int64_t first = piece.message_begin + first_element_of(s.self);
        space(s.self, piece.space)
            .assign(piece.range.begin, piece.range.end, Held{first - piece.range.begin, {piece.contributor}});
      }
    }
  }

  ScheduleStates run() {
    order_steps();
    std::vector<std::vector<Holding>> rounds;
    size_t next = 0;
    for (int round = 0; round == 0 || next < order_.size(); ++round) {
      for (; next < order_.size() && order_[next].round == round; ++next) execute(order_[next].rank, order_[next].step);
      rounds.push_back(holdings());
    }
    return tables(rounds);
  }

 private:
  struct Placed {
    int round;
    Rank rank;
    int step;
  };
  struct Holding {
    Rank rank;
    int64_t begin, end;
    ScheduleStates::Cell ranks;
  };

  // Inputs of an all_to_all are as many messages as ranks.
  int64_t first_element_of(Rank rank) const {
    return all_[0].collective == Collective::kAllToAll ? rank * all_[0].elements : 0;
  }
  IntervalMap<Held>& space(Rank rank, Space which) {
    return memory_[static_cast<size_t>(rank * kSpaces + static_cast<int>(which))];
  }

  // Finds the round of each step: the longest path of rounds to it. Messages end in the same round at both ends.
  void order_steps() {
    std::vector<std::vector<std::vector<int>>> after(all_.size());
    std::vector<std::vector<int>> missing(all_.size()), round(all_.size());
    std::deque<std::pair<Rank, int>> ready;
    for (size_t r = 0; r < all_.size(); ++r) {
      const auto before = derive_dependencies(all_[r]);
      after[r].resize(before.size());
      missing[r].resize(before.size());
      round[r].assign(before.size(), 0);
      for (size_t s = 0; s < before.size(); ++s) {
        missing[r][s] = static_cast<int>(before[s].size());
        for (const int earlier : before[s]) after[r][static_cast<size_t>(earlier)].push_back(static_cast<int>(s));
        if (before[s].empty()) ready.emplace_back(static_cast<Rank>(r), static_cast<int>(s));
      }
    }
    std::set<std::pair<Rank, int>> arrived;
    const auto finish = [&](Rank rank, int step) {
      const size_t r = static_cast<size_t>(rank), s = static_cast<size_t>(step);
      order_.push_back({round[r][s], rank, step});
      for (const int later : after[r][s]) {
        int& its_round = round[r][static_cast<size_t>(later)];
        its_round = std::max(its_round, round[r][s]);
        if (--missing[r][static_cast<size_t>(later)] == 0) ready.emplace_back(rank, later);
      }
    };
    while (!ready.empty()) {
      const auto [rank, step] = ready.front();
      ready.pop_front();
      const Step& one = all_[static_cast<size_t>(rank)].steps[static_cast<size_t>(step)];
      int& mine = round[static_cast<size_t>(rank)][static_cast<size_t>(step)];
      const bool is_pair = is_message(one) || one.kind == StepKind::kWait || one.kind == StepKind::kSignal;
      if (!is_pair) {
        mine += touches_a_peer(one, rank) ? 1 : 0;
        finish(rank, step);
        continue;
      }
      const std::pair<Rank, int> peer = {one.peer, meets_[static_cast<size_t>(rank)][static_cast<size_t>(step)]};
      if (one.kind == StepKind::kSignal) finish(rank, step);
      if (arrived.insert({rank, step}); !arrived.contains(peer)) continue;
      int& theirs = round[static_cast<size_t>(peer.first)][static_cast<size_t>(peer.second)];
      if (is_message(one)) {
        mine = theirs = std::max(mine, theirs) + 1;
        // The receiving end moves the elements: it comes after the sending one, which then moves nothing.
        const bool sends = one.kind == StepKind::kSend;
        sends ? finish(rank, step) : finish(peer.first, peer.second);
        sends ? finish(peer.first, peer.second) : finish(rank, step);
      } else if (one.kind == StepKind::kWait) {
        mine = std::max(mine, theirs);
        finish(rank, step);
      } else {
        theirs = std::max(mine, theirs);
        finish(peer.first, peer.second);
      }
    }
    size_t num_steps = 0;
    for (const Schedule& s : all_) num_steps += s.steps.size();
    HERD_CHECK_EQ(order_.size(), num_steps);
    std::ranges::stable_sort(order_, {}, &Placed::round);
  }

  struct Piece {
    int64_t begin, end;  // from the slice's begin
    Held held;           // its shift counts from the slice's begin
  };

  std::vector<Piece> read(const Slice& slice) {
    std::vector<Piece> pieces;
    space(slice.rank, slice.space).update(slice.begin, slice.end, [&](int64_t begin, int64_t end, Held& held) {
      pieces.push_back({begin - slice.begin, end - slice.begin, {held.shift + slice.begin, held.ranks}});
    });
    return pieces;
  }
  void write(const Slice& slice, const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces)
      space(slice.rank, slice.space)
          .assign(slice.begin + piece.begin, slice.begin + piece.end,
                  Held{piece.held.shift - slice.begin, piece.held.ranks});
  }
  static std::vector<Piece> add(const std::vector<Piece>& a, const std::vector<Piece>& b) {
    std::vector<Piece> sums;
    for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
      Piece sum{std::max(a[i].begin, b[k].begin), std::min(a[i].end, b[k].end), {a[i].held.shift, {}}};
      std::ranges::set_union(a[i].held.ranks, b[k].held.ranks, std::back_inserter(sum.held.ranks));
      sums.push_back(std::move(sum));
      const int64_t end = sums.back().end;
      if (a[i].end == end) ++i;
      if (b[k].end == end) ++k;
    }
    return sums;
  }

  void execute(Rank rank, int index) {
    const Step& step = all_[static_cast<size_t>(rank)].steps[static_cast<size_t>(index)];
    std::vector<Piece> result;
    switch (step.kind) {
      case StepKind::kCopy:
      case StepKind::kReduce:
        result = read(step.sources[0]);
        for (size_t i = 1; step.kind == StepKind::kReduce && i < step.sources.size(); ++i)
          result = add(result, read(step.sources[i]));
        for (const Slice& target : step.targets) write(target, result);
        return;
      case StepKind::kReceive:
      case StepKind::kReceiveReduce: {
        const int sent = meets_[static_cast<size_t>(rank)][static_cast<size_t>(index)];
        result = read(all_[static_cast<size_t>(step.peer)].steps[static_cast<size_t>(sent)].sources[0]);
        if (step.kind == StepKind::kReceiveReduce) result = add(read(step.sources[0]), result);
        return write(step.targets[0], result);
      }
      case StepKind::kSend:
      case StepKind::kSignal:
      case StepKind::kWait:
        return;
    }
  }

  std::vector<Holding> holdings() {
    std::vector<Holding> all;
    for (Rank rank = 0; rank < n_; ++rank) {
      for (int which = 0; which < kSpaces; ++which) {
        const Space in = static_cast<Space>(which);
        space(rank, in).update(0, space_size(all_[static_cast<size_t>(rank)], rank, in),
                               [&](int64_t begin, int64_t end, Held& held) {
                                 if (!held.ranks.empty())
                                   all.push_back({rank, begin + held.shift, end + held.shift, held.ranks});
                               });
      }
    }
    return all;
  }

  ScheduleStates tables(const std::vector<std::vector<Holding>>& rounds) const {
    std::set<int64_t> cuts;
    for (const auto& round : rounds) {
      for (const Holding& holding : round) cuts.insert({holding.begin, holding.end});
    }
    ScheduleStates states{all_[0].collective, all_[0].algorithm, n_, {}, {}};
    const int64_t elements = std::max<int64_t>(1, all_[0].elements);
    const bool many = all_[0].collective == Collective::kAllToAll;
    std::vector<int64_t> begins(cuts.begin(), cuts.end());
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      const Rank from = many ? static_cast<Rank>(begins[i] / elements) : -1;
      const int64_t first = many ? from * elements : 0;
      states.chunks.push_back({begins[i] - first, begins[i + 1] - first, from});
    }
    for (const auto& round : rounds) {
      ScheduleStates::Table table(states.chunks.size(), std::vector<ScheduleStates::Cell>(static_cast<size_t>(n_)));
      for (const Holding& holding : round) {
        const auto at = [&](int64_t element) {
          return static_cast<size_t>(std::ranges::lower_bound(begins, element) - begins.begin());
        };
        for (size_t chunk = at(holding.begin); chunk < at(holding.end); ++chunk) {
          ScheduleStates::Cell& cell = table[chunk][static_cast<size_t>(holding.rank)];
          if (holding.ranks.size() > cell.size()) cell = holding.ranks;
        }
      }
      states.rounds.push_back(std::move(table));
    }
    merge_equal_rows(states);
    return states;
  }

  // Neighbours that hold the same in every round are one chunk.
  static void merge_equal_rows(ScheduleStates& states) {
    for (size_t row = states.chunks.size(); row-- > 1;) {
      const bool equal = states.chunks[row].from == states.chunks[row - 1].from &&
                         std::ranges::all_of(states.rounds, [row](const auto& t) { return t[row] == t[row - 1]; });
      if (!equal) continue;
      states.chunks[row - 1].end = states.chunks[row].end;
      const auto offset = static_cast<std::ptrdiff_t>(row);
      states.chunks.erase(states.chunks.begin() + offset);
      for (auto& table : states.rounds) table.erase(table.begin() + offset);
    }
  }

  std::span<const Schedule> all_;
  int n_;
  std::vector<std::vector<int>> meets_;
  std::vector<IntervalMap<Held>> memory_;
  std::vector<Placed> order_;
};

}  // namespace

ScheduleStates states_of(std::span<const Schedule> all_ranks) { return Replay(all_ranks).run(); }

std::string cell_text(const ScheduleStates& states, const ScheduleStates::Cell& cell) {
  if (cell.empty()) return ".";
  if (is_reduction(states.collective) && states.num_ranks > 1 && static_cast<int>(cell.size()) == states.num_ranks)
    return "all";
  std::string text;
  for (const Rank rank : cell) text += (text.empty() ? "" : "+") + std::to_string(rank);
  return text;
}

std::string chunk_text(const ScheduleStates::Chunk& chunk) {
  return (chunk.from >= 0 ? "rank " + std::to_string(chunk.from) + ", " : std::string()) + "elements " +
         std::to_string(chunk.begin) + ".." + std::to_string(chunk.end - 1);
}

std::string states_text(const ScheduleStates& states) {
  std::string text;
  for (size_t round = 0; round < states.rounds.size(); ++round) {
    draw::Table table{{{round == 0 ? "before" : "round " + std::to_string(round)}}, {}};
    for (int rank = 0; rank < states.num_ranks; ++rank) table.columns.push_back({"rank " + std::to_string(rank)});
    for (size_t chunk = 0; chunk < states.chunks.size(); ++chunk) {
      std::vector<std::string> row = {chunk_text(states.chunks[chunk])};
      for (const auto& cell : states.rounds[round][chunk]) row.push_back(cell_text(states, cell));
      table.rows.push_back(std::move(row));
    }
    text += (round == 0 ? "" : "\n") + draw::text_table(table);
  }
  return text;
}

}  // namespace herd
