#include "herd/collectives/ring.h"

namespace herd {

void ring_reduce_scatter(Builder& b, RingSums sums) {
  const int n = b.num_ranks();
  const Rank next = b.neighbor(1), previous = b.neighbor(-1);
  const int64_t longest = b.longest_part();
  Slice partial_sums[2];
  if (sums == RingSums::kScratch) {
    // With two ranks the only sum is complete at once, so no scratch is needed.
    for (Slice& partial_sum : partial_sums) partial_sum = n > 2 ? b.scratch(longest) : Slice{};
  }
  Slice held = b.input(b.part(previous));
  for (int step = 0; step < n - 1; ++step) {
    // The part of rank self - 2 - step comes in, and gets this rank's input added.
    const Range part = b.part(b.neighbor(-2 - step));
    const bool last = step == n - 2;
    b.send(next, held);
    if (last || sums == RingSums::kOutput) {
      held = b.output(part);
    } else {
      held = partial_sums[step % 2];
      held.end = held.begin + part.size();
    }
    b.receive_reduce(previous, held, b.input(part), last ? Sum::kComplete : Sum::kPartial);
  }
}

void ring_all_gather(Builder& b) {
  const Rank next = b.neighbor(1), previous = b.neighbor(-1);
  for (int step = 0; step < b.num_ranks() - 1; ++step) {
    b.send(next, b.output(b.part(b.neighbor(-step))));
    b.receive(previous, b.output(b.part(b.neighbor(-step - 1))));
  }
}

}  // namespace herd
