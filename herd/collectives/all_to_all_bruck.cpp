#include "herd/collectives/all_to_all.h"

namespace herd {

Schedule all_to_all_bruck(const CollectiveRequest& request) {
  Builder b = builder_for(request, "bruck");
  if (build_if_alone(b)) return b.finish();
  const int n = b.num_ranks();
  const Rank self = b.self();
  // Block i travels i ranks. Before the round of a hop, held[i] is the block i that began i mod hop ranks before this
  // rank.
  std::vector<Slice> held(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) held[i] = b.sent(self, b.neighbor(i));
  // Returns the elements of the block i that arrives in the round of `hop`: it began i mod 2 hop ranks before this
  // rank.
  const auto arriving_elements = [&](int i, int hop) {
    const int origin = b.neighbor(-(i & (2 * hop - 1)));
    return b.layout().sent(origin, (origin + i) % n).size();
  };
  for (int hop = 1; hop < n; hop *= 2) {
    int64_t out_elements = 0, in_elements = 0;
    for (int i = hop; i < n; ++i) {
      if (!(i & hop)) continue;
      out_elements += held[i].size();
      in_elements += arriving_elements(i, hop);
    }
    const Slice out = b.scratch(out_elements), in = b.scratch(in_elements);
    int64_t out_at = out.begin, in_at = in.begin;
    for (int i = hop; i < n; ++i) {
      if (!(i & hop)) continue;
      b.copy(held[i], {Slice{self, Space::kScratch, out_at, out_at + held[i].size()}});
      out_at += held[i].size();
      const int64_t size = arriving_elements(i, hop);
      held[i] = {self, Space::kScratch, in_at, in_at + size};
      in_at += size;
    }
    b.send(b.neighbor(hop), out);
    b.receive(b.neighbor(-hop), in);
  }
  for (int i = 0; i < n; ++i) b.copy(held[i], {b.received(b.neighbor(-i), self)});
  return b.finish();
}

}  // namespace herd
