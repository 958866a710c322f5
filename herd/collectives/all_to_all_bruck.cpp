#include "herd/collectives/all_to_all.h"

namespace herd {

Schedule all_to_all_bruck(const CollectiveRequest& request) {
  Builder b = builder_for(request, "bruck");
  if (build_if_alone(b)) return b.finish();
  const int n = b.num_ranks();
  const Rank self = b.self();
  // Block i travels i ranks. Before round k, held[i] is the block i that began i mod 2^k ranks before this rank.
  std::vector<Slice> held(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) held[i] = b.sent(self, b.neighbor(i));
  // Returns the elements of block i that has travelled `gone` ranks, on the rank `holder_distance` after this one.
  const auto size_at = [&](int holder_distance, int i, int gone) {
    const int from = b.neighbor(holder_distance - gone);
    return b.layout().sent(from, (from + i) % n).size();
  };
  for (int hop = 1; hop < n; hop *= 2) {
    int64_t out_elements = 0, in_elements = 0;
    for (int i = hop; i < n; ++i) {
      if (!(i & hop)) continue;
      out_elements += held[i].size();
      in_elements += size_at(0, i, (i & (hop - 1)) + hop);
    }
    const Slice out = b.scratch(out_elements), in = b.scratch(in_elements);
    int64_t out_at = out.begin, in_at = in.begin;
    for (int i = hop; i < n; ++i) {
      if (!(i & hop)) continue;
      b.copy(held[i], {Slice{self, Space::kScratch, out_at, out_at + held[i].size()}});
      out_at += held[i].size();
      const int64_t size = size_at(0, i, (i & (hop - 1)) + hop);
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
