#include <functional>

#include "herd/collectives/barrier.h"

namespace herd {
namespace {

// One element of scratch per round orders the rounds: hearing writes it, telling reads those of the rounds before.
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
  disseminate(b, [&b](Rank to, Rank from, Slice before, Slice now) {
    b.send_empty(to, {before});
    b.receive_empty(from, {now});
  });
  return b.finish();
}

Schedule barrier_dissemination_signal(const CollectiveRequest& request) {
  Builder b = builder_for(request, "dissemination_signal");
  disseminate(b, [&b](Rank to, Rank from, Slice before, Slice now) {
    b.signal(to, {before});
    b.wait(from, {now});
  });
  return b.finish();
}

}  // namespace herd
