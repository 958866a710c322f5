#include <algorithm>

#include "herd/collectives/all_gather.h"

namespace herd {

Schedule all_gather_bruck(const CollectiveRequest& request) {
  Builder b = builder_for(request, "bruck");
  if (build_if_alone(b)) return b.finish();
  const int n = b.num_ranks();
  const Range mine = b.part(b.self());
  const Slice all = b.scratch(b.elements());  // the parts of ranks self, self+1, .. (mod n)
  // Returns the scratch of parts [begin, end), counted from this rank's part.
  const auto parts_from_self = [&](int begin, int end) {
    const auto offset = [&](int part) {
      if (part == n) return b.elements();
      const int64_t start = b.part((b.self() + part) % n).begin - mine.begin;
      return b.self() + part < n ? start : start + b.elements();
    };
    return Slice{b.self(), Space::kScratch, all.begin + offset(begin), all.begin + offset(end)};
  };
  b.copy(b.input(mine), {parts_from_self(0, 1)});
  for (int have = 1; have < n; have *= 2) {
    const int more = std::min(have, n - have);
    b.send(b.neighbor(-have), parts_from_self(0, more));
    b.receive(b.neighbor(have), parts_from_self(have, have + more));
  }
  const int64_t after = b.elements() - mine.begin;  // elements from this rank's part to the end
  b.copy({b.self(), Space::kScratch, all.begin, all.begin + after}, {b.output({mine.begin, b.elements()})});
  b.copy({b.self(), Space::kScratch, all.begin + after, all.end}, {b.output({0, mine.begin})});
  return b.finish();
}

}  // namespace herd
