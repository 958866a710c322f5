#include "herd/collectives/chain.h"

namespace herd {

Schedule all_gather_chain(const CollectiveRequest& request) {
  Builder b = builder_for(request, "chain");
  if (build_if_alone(b)) return b.finish();
  const Rank self = b.self(), last = b.num_ranks() - 1;
  b.copy(b.input(b.part(self)), {b.output(b.part(self))});
  for (int step = 0; step < last; ++step) {
    const Rank right_moving = self - step, left_moving = self + step;  // parts that leave here now
    if (self < last && right_moving >= 0) b.send(self + 1, b.output(b.part(right_moving)));
    if (self > 0 && left_moving <= last) b.send(self - 1, b.output(b.part(left_moving)));
    if (self > 0 && right_moving - 1 >= 0) b.receive(self - 1, b.output(b.part(right_moving - 1)));
    if (self < last && left_moving + 1 <= last) b.receive(self + 1, b.output(b.part(left_moving + 1)));
  }
  return b.finish();
}

}  // namespace herd
