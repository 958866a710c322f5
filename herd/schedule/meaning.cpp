#include "herd/schedule/meaning.h"

#include "herd/schedule/message_layout.h"

namespace herd {
namespace {

// Says whether the rank's input is the whole message.
bool gives_whole(const Schedule& h, Rank rank) {
  return is_reduction(h.collective) ||
         ((h.collective == Collective::kBroadcast || h.collective == Collective::kScatter) && rank == h.root);
}

// Says whether each rank's input is its part of the message.
bool gives_part(const Schedule& h) {
  return h.collective == Collective::kAllGather || h.collective == Collective::kGather;
}

// Says whether the rank's input lies in its output.
bool input_in_output(const Schedule& h, Rank rank) {
  return h.in_place && (h.collective != Collective::kGather || rank == h.root);
}

int64_t output_size(const Schedule& h, Rank owner) {
  switch (h.collective) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kBroadcast:
      return h.elements;
    case Collective::kReduceScatter:
      return h.in_place ? h.elements : MessageLayout(h).part(owner).size();
    case Collective::kScatter:
      return h.in_place && owner == h.root ? h.elements : MessageLayout(h).part(owner).size();
    case Collective::kReduce:
      return h.in_place || owner == h.root ? h.elements : 0;
    case Collective::kGather:
      return owner == h.root ? h.elements : 0;
    case Collective::kAllToAll:
      return MessageLayout(h).num_received(owner);
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

int64_t input_size(const Schedule& h, Rank owner) {
  if (input_in_output(h, owner)) return 0;
  if (gives_part(h)) return MessageLayout(h).part(owner).size();
  if (h.collective == Collective::kAllToAll) return MessageLayout(h).num_sent(owner);
  return gives_whole(h, owner) ? h.elements : 0;
}

}  // namespace

bool has_root(Collective c) {
  return c == Collective::kBroadcast || c == Collective::kReduce || c == Collective::kGather ||
         c == Collective::kScatter;
}

bool is_reduction(Collective c) {
  return c == Collective::kAllReduce || c == Collective::kReduceScatter || c == Collective::kReduce;
}

bool has_counts(Collective c) {
  return c == Collective::kAllGather || c == Collective::kReduceScatter || c == Collective::kGather ||
         c == Collective::kScatter || c == Collective::kAllToAll;
}

int64_t space_size(const Schedule& h, Rank owner, Space space) {
  switch (space) {
    case Space::kInput:
      return input_size(h, owner);
    case Space::kOutput:
      return output_size(h, owner);
    case Space::kScratch:
      return owner == h.self ? h.scratch_elements : 0;
    case Space::kStage:
      return h.stage_elements;
  }
  return 0;
}

std::vector<MessagePiece> initial_contributions(const Schedule& h, Rank rank) {
  const Space space = input_in_output(h, rank) ? Space::kOutput : Space::kInput;
  if (gives_whole(h, rank)) return {{space, {0, h.elements}, 0, rank}};
  if (h.collective == Collective::kAllToAll) return {{space, {0, MessageLayout(h).num_sent(rank)}, 0, rank}};
  if (!gives_part(h)) return {};
  const Range part = MessageLayout(h).part(rank);
  return {{space, space == Space::kOutput ? part : Range{0, part.size()}, part.begin, rank}};
}

std::vector<MessagePiece> expected_results(const Schedule& h, Rank rank) {
  const MessageLayout layout(h);
  const Range all{0, h.elements};
  const auto part_in = [&](bool whole, Rank contributor) -> MessagePiece {
    const Range own = layout.part(rank);
    return {Space::kOutput, whole ? own : Range{0, own.size()}, own.begin, contributor};
  };
  std::vector<MessagePiece> pieces;
  switch (h.collective) {
    case Collective::kAllReduce:
      return {{Space::kOutput, all, 0, kEveryRank}};
    case Collective::kGather:
      if (rank != h.root) return {};
      [[fallthrough]];
    case Collective::kAllGather:
      for (Rank owner = 0; owner < h.num_ranks; ++owner) {
        const Range part = layout.part(owner);
        pieces.push_back({Space::kOutput, part, part.begin, owner});
      }
      return pieces;
    case Collective::kReduceScatter:
      return {part_in(h.in_place, kEveryRank)};
    case Collective::kScatter:
      return {part_in(h.in_place && rank == h.root, h.root)};
    case Collective::kBroadcast:
      return {{Space::kOutput, all, 0, h.root}};
    case Collective::kReduce:
      if (rank == h.root) return {{Space::kOutput, all, 0, kEveryRank}};
      if (h.in_place) return {{Space::kOutput, all, 0, rank}};  // the output keeps the rank's input
      return {};
    case Collective::kAllToAll:
      for (Rank from = 0; from < h.num_ranks; ++from) {
        pieces.push_back({Space::kOutput, layout.received(from, rank), layout.sent(from, rank).begin, from});
      }
      return pieces;
    case Collective::kBarrier:
      return {};
  }
  return {};
}

}  // namespace herd
