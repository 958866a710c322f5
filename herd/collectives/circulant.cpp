#include "herd/collectives/circulant.h"

#include <algorithm>
#include <functional>

namespace herd {
namespace {

// Returns blocks [begin, end) of this rank as one or two ranges of the message.
std::vector<Range> blocks(const Builder& b, int begin, int end) {
  const int n = b.num_ranks(), first = b.self() + begin, last = b.self() + end - 1;
  if (last < n || first >= n) return {{b.part(first % n).begin, b.part(last % n).end}};
  return {{b.part(first).begin, b.part(n - 1).end}, {0, b.part(last - n).end}};
}

}  // namespace

std::vector<int> circulant_skips(int num_ranks) {
  std::vector<int> skips;
  for (int skip = num_ranks; skip > 1;) skips.push_back(skip = (skip + 1) / 2);
  std::reverse(skips.begin(), skips.end());
  return skips;
}

void circulant_reduce_scatter(Builder& b, CirculantSums sums) {
  const int n = b.num_ranks();
  std::vector<int> skips = circulant_skips(n);
  const int64_t origin = b.part(b.self()).begin;
  Slice scratch = {};
  if (sums == CirculantSums::kScratch && skips.back() > 1) {
    int64_t kept_elements = 0;
    for (const Range range : blocks(b, 0, skips.back())) kept_elements += range.size();
    scratch = b.scratch(kept_elements);
  }
  const auto partial = [&](Range range) {
    if (sums == CirculantSums::kOutput) return b.output(range);
    const int64_t offset = range.begin >= origin ? range.begin - origin : b.elements() - origin + range.begin;
    return Slice{b.self(), Space::kScratch, scratch.begin + offset, scratch.begin + offset + range.size()};
  };
  std::function<Slice(Range)> held = [&](Range range) { return b.input(range); };
  for (int held_blocks = n; !skips.empty(); skips.pop_back()) {
    const int skip = skips.back();
    const bool last = skip == 1;
    for (const Range range : blocks(b, skip, held_blocks)) b.send(b.neighbor(skip), held(range));
    for (const Range range : blocks(b, 0, held_blocks - skip)) {
      b.receive_reduce(b.neighbor(-skip), last ? b.output(range) : partial(range), held(range),
                       last ? Sum::kComplete : Sum::kPartial);
    }
    // One block may receive nothing in the first round; a copy puts it beside the other partial sums.
    if (held_blocks == n && 2 * skip > n && !last) {
      for (const Range range : blocks(b, skip - 1, skip)) b.copy(b.input(range), {partial(range)});
    }
    held = partial;
    held_blocks = skip;
  }
}

void circulant_all_gather(Builder& b) {
  const std::vector<int> skips = circulant_skips(b.num_ranks());
  for (size_t i = 0; i < skips.size(); ++i) {
    const int skip = skips[i], held_blocks = i + 1 < skips.size() ? skips[i + 1] : b.num_ranks();
    for (const Range range : blocks(b, 0, held_blocks - skip)) b.send(b.neighbor(-skip), b.output(range));
    for (const Range range : blocks(b, skip, held_blocks)) b.receive(b.neighbor(skip), b.output(range));
  }
}

}  // namespace herd
