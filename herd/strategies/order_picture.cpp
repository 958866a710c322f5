#include "herd/strategies/order_picture.h"

#include <algorithm>
#include <cstdio>

namespace herd::strategies {
namespace {

using spec::Pass;
using spec::PipelineOrder;
using spec::Turn;

// Returns the ticks that a turn takes: one, or two for a backward that is not split.
int units_of(const Turn& turn, bool splits_backward) {
  return turn.pass == Pass::kBackward && !splits_backward ? 2 : 1;
}

std::string short_name(const PipelineOrder& order, const Turn& turn) {
  const char* letters = turn.local_stage == 1 ? "fbw" : "FBW";
  std::string name = letters[static_cast<size_t>(turn.pass)] + std::to_string(turn.micro_batch);
  if (order.stages_per_rank > 2) name += "@" + std::to_string(turn.local_stage);
  return name;
}

// Returns the most forward passes whose graphs a rank holds at one time.
int most_held(const PipelineOrder& order, int rank, bool split) {
  const Pass last_pass = split ? Pass::kWeights : Pass::kBackward;
  int held = 0, max_held = 0;
  for (const Turn& turn : order.turns[static_cast<size_t>(rank)]) {
    if (turn.pass == Pass::kForward) max_held = std::max(max_held, ++held);
    if (turn.pass == last_pass) --held;
  }
  return max_held;
}

}  // namespace

std::string order_picture(const PipelineOrder& order) {
  const auto times = times_of(order);
  const bool split = order.splits_backward();
  int end = 0, busy = 0;
  size_t width = 3;
  for (int rank = 0; rank < order.ranks; ++rank) {
    end = std::max(end, times[static_cast<size_t>(rank)].back());
    for (const Turn& turn : order.turns[static_cast<size_t>(rank)])
      width = std::max(width, short_name(order, turn).size() + 1);
  }
  for (const Turn& turn : order.turns[0]) busy += units_of(turn, split);
  std::string out;
  const auto add = [&](std::string cell) { out += cell + std::string(width - cell.size(), ' '); };
  for (int rank = 0; rank < order.ranks; ++rank) {
    const auto& turns = order.turns[static_cast<size_t>(rank)];
    out += "rank " + std::to_string(rank) + "  ";
    int tick = 0;
    for (size_t i = 0; i < turns.size(); ++i) {
      const int begin = times[static_cast<size_t>(rank)][i] - units_of(turns[i], split);
      for (; tick < begin; ++tick) add(".");
      add(short_name(order, turns[i]));
      for (++tick; tick < times[static_cast<size_t>(rank)][i]; ++tick) add("==");
    }
    for (; tick < end; ++tick) add(".");
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  char share[32];
  std::snprintf(share, sizeof share, "%.0f %%", 100.0 * (end - busy) / end);
  out += "idle: " + std::to_string(end - busy) + " of " + std::to_string(end) + " units (" + share +
         ") on each rank\nin memory at most:";
  for (int rank = 0; rank < order.ranks; ++rank)
    out += (rank > 0 ? ", " : " ") + std::to_string(most_held(order, rank, split)) + " on rank " + std::to_string(rank);
  return out +
         (order.stages_per_rank > 1 ? ", each of one stage of " + std::to_string(order.stages_per_rank) + "\n" : "\n");
}

sim::Timeline order_timeline(const PipelineOrder& order) {
  const auto times = times_of(order);
  const bool split = order.splits_backward();
  sim::Timeline out;
  out.title = std::to_string(order.ranks) + " ranks, " + std::to_string(order.stages_per_rank) + " stages each, " +
              std::to_string(order.micro_batches) + " micro-batches";
  const char* categories[] = {"forward", "backward", "backward_weight"};
  for (int rank = 0; rank < order.ranks; ++rank) {
    out.rows.push_back({"rank " + std::to_string(rank), "compute"});
    const auto& turns = order.turns[static_cast<size_t>(rank)];
    for (size_t i = 0; i < turns.size(); ++i) {
      const double ends = times[static_cast<size_t>(rank)][i];
      out.spans.push_back({rank, short_name(order, turns[i]), categories[static_cast<size_t>(turns[i].pass)],
                           ends - units_of(turns[i], split), ends});
    }
  }
  return out;
}

}  // namespace herd::strategies
