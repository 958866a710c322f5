#include "herd/schedule/meaning.h"

namespace herd {
namespace {

bool gives_whole(const Schedule& h, Rank rank) {  // the rank's input is the whole message
  switch (h.collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kReduce:
      return true;
    case Collective::kBroadcast:
      return rank == h.root;
    case Collective::kAllGather:
    case Collective::kBarrier:
      return false;
  }
  return false;
}

int64_t output_size(const Schedule& h, Rank owner) {
  switch (h.collective) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kBroadcast:
      return h.elements;
    case Collective::kReduceScatter:
      return h.in_place ? h.elements : part_of(h.elements, h.num_ranks, owner).size();
    case Collective::kReduce:
      return h.in_place || owner == h.root ? h.elements : 0;
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

int64_t input_size(const Schedule& h, Rank owner) {
  if (h.in_place) return 0;
  if (h.collective == Collective::kAllGather) return part_of(h.elements, h.num_ranks, owner).size();
  return gives_whole(h, owner) ? h.elements : 0;
}

}  // namespace

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

std::vector<Placed> given_to(const Schedule& h, Rank rank) {
  const Space space = h.in_place ? Space::kOutput : Space::kInput;
  if (gives_whole(h, rank)) return {{space, {0, h.elements}, 0, rank}};
  if (h.collective != Collective::kAllGather) return {};
  const Range part = part_of(h.elements, h.num_ranks, rank);
  return {{space, h.in_place ? part : Range{0, part.size()}, part.begin, rank}};
}

std::vector<Placed> expected_from(const Schedule& h, Rank rank) {
  const Range all{0, h.elements}, part = part_of(h.elements, h.num_ranks, rank);
  std::vector<Placed> places;
  switch (h.collective) {
    case Collective::kAllReduce:
      return {{Space::kOutput, all, 0, kEveryRank}};
    case Collective::kAllGather:
      for (Rank owner = 0; owner < h.num_ranks; ++owner) {
        const Range theirs = part_of(h.elements, h.num_ranks, owner);
        places.push_back({Space::kOutput, theirs, theirs.begin, owner});
      }
      return places;
    case Collective::kReduceScatter:
      return {{Space::kOutput, h.in_place ? part : Range{0, part.size()}, part.begin, kEveryRank}};
    case Collective::kBroadcast:
      return {{Space::kOutput, all, 0, h.root}};
    case Collective::kReduce:
      if (rank == h.root) return {{Space::kOutput, all, 0, kEveryRank}};
      if (h.in_place) return {{Space::kOutput, all, 0, rank}};  // left as it was
      return {};
    case Collective::kBarrier:
      return {};
  }
  return {};
}

}  // namespace herd
