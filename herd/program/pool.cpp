#include "herd/program/pool.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace herd::program {
namespace {

// Says whether two uses need different buffers: their ops overlap, or their visits are less than `depth` apart.
bool conflict(const PoolUse& a, const PoolUse& b, int depth) {
  const bool by_visit = a.first_visit - b.last_visit < depth && b.first_visit - a.last_visit < depth;
  return by_visit || (a.first_op <= b.last_op && b.first_op <= a.last_op);
}

// Returns the pairs of items that may not share a buffer, by a sweep over the uses, which are sorted by their first
// visits. A use that begins long before its first visit may come late in the sweep.
std::set<std::pair<int, int>> conflicting_pairs(const std::vector<PoolUse>& uses, int depth) {
  std::set<std::pair<int, int>> conflicts;
  std::vector<int> earliest_op(uses.size());  // of a use and those after it
  for (size_t i = uses.size(); i-- > 0;)
    earliest_op[i] = i + 1 < uses.size() ? std::min(uses[i].first_op, earliest_op[i + 1]) : uses[i].first_op;
  std::vector<PoolUse> recent;
  for (size_t i = 0; i < uses.size(); ++i) {
    const PoolUse& use = uses[i];
    std::erase_if(recent, [&](const PoolUse& other) {
      return use.first_visit - other.last_visit >= depth && other.last_op < earliest_op[i];
    });
    for (const PoolUse& other : recent) {
      if (other.item != use.item && conflict(use, other, depth)) conflicts.insert(std::minmax(use.item, other.item));
    }
    recent.push_back(use);
  }
  return conflicts;
}

}  // namespace

int64_t Pool::bytes() const { return std::accumulate(buffer_bytes.begin(), buffer_bytes.end(), int64_t{0}); }

Pool assign_pool(const std::vector<int64_t>& bytes, const std::vector<PoolUse>& uses, int depth) {
  const auto conflicts = conflicting_pairs(uses, depth);
  struct PoolBuffer {
    std::vector<int> items;
    int64_t min_bytes, max_bytes;  // of its smallest and its largest item
  };
  std::vector<PoolBuffer> buffers;
  Pool pool;
  pool.buffer_of.assign(bytes.size(), -1);
  for (const PoolUse& use : uses) {
    const int item = use.item;
    int& chosen = pool.buffer_of[static_cast<size_t>(item)];
    if (chosen >= 0) continue;
    const int64_t size = bytes[static_cast<size_t>(item)];
    const auto fits = [&](const PoolBuffer& buffer) {
      return std::max(buffer.max_bytes, size) <= 2 * std::min(buffer.min_bytes, size) &&
             std::none_of(buffer.items.begin(), buffer.items.end(),
                          [&](int other) { return conflicts.contains(std::minmax(item, other)); });
    };
    auto at = std::find_if(buffers.begin(), buffers.end(), fits);
    if (at == buffers.end()) at = buffers.insert(buffers.end(), {{}, size, size});
    at->items.push_back(item);
    at->min_bytes = std::min(at->min_bytes, size);
    at->max_bytes = std::max(at->max_bytes, size);
    chosen = static_cast<int>(at - buffers.begin());
  }
  for (const PoolBuffer& buffer : buffers) pool.buffer_bytes.push_back(buffer.max_bytes);
  return pool;
}

}  // namespace herd::program
