#include <functional>

#include "herd/collectives/barrier.h"

namespace herd {
namespace {

// One element of scratch per round orders the rounds: a receive writes it, and a send reads those of earlier rounds.
using Exchange = std::function<void(Rank to, Rank from, Slice heard_before, Slice heard_now)>;

void disseminate(Builder& b, const Exchange& exchange) {
  int round = 0;
  for (int distance = 1; distance < b.num_ranks(); distance *= 2, ++round) {
    const Slice now = b.scratch(1);
    exchange(b.neighbor(distance), b.neighbor(-distance), {b.self(), Space::kScratch, 0, now.begin}, now);
  }
}

}  // namespace

Schedule barrier_dissemination_send(const CollectiveRequest& request) {
  Builder b = builder_for(request, "dissemination_send");
  disseminate(b, [&b](Rank to, Rank from, Slice heard_before, Slice heard_now) {
    b.send_empty(to, {heard_before});
    b.receive_empty(from, {heard_now});
  });
  return b.finish();
}

Schedule barrier_dissemination_signal(const CollectiveRequest& request) {
  Builder b = builder_for(request, "dissemination_signal");
  disseminate(b, [&b](Rank to, Rank from, Slice heard_before, Slice heard_now) {
    b.signal(to, {heard_before});
    b.wait(from, {heard_now});
  });
  return b.finish();
}

}  // namespace herd
