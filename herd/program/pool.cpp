#include "herd/program/pool.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace herd::program {
namespace {

bool close(const PoolUse& a, const PoolUse& b, int depth) {
  const bool by_visit = a.first_visit - b.last_visit < depth && b.first_visit - a.last_visit < depth;
  return by_visit || (a.first_op <= b.last_op && b.first_op <= a.last_op);
}

// Pairs of items that may not share, by a sweep over the uses.
std::set<std::pair<int, int>> pairs_apart(const std::vector<PoolUse>& uses, int depth) {
  std::set<std::pair<int, int>> apart;
  std::vector<PoolUse> recent;
  for (const PoolUse& use : uses) {
    std::erase_if(recent, [&](const PoolUse& other) {
      return use.first_visit - other.last_visit >= depth && other.last_op < use.first_op;
    });
    for (const PoolUse& other : recent) {
      if (other.item != use.item && close(use, other, depth)) apart.insert(std::minmax(use.item, other.item));
    }
    recent.push_back(use);
  }
  return apart;
}

}  // namespace

int64_t Pool::bytes() const { return std::accumulate(buffer_bytes.begin(), buffer_bytes.end(), int64_t{0}); }

Pool assign_pool(const std::vector<int64_t>& bytes, const std::vector<PoolUse>& uses, int depth) {
  const auto apart = pairs_apart(uses, depth);
  struct Buffer {
    std::vector<int> items;
    int64_t least, most;
  };
  std::vector<Buffer> buffers;
  Pool pool;
  pool.buffer_of.assign(bytes.size(), -1);
  for (const PoolUse& use : uses) {
    const int item = use.item;
    int& chosen = pool.buffer_of[static_cast<size_t>(item)];
    if (chosen >= 0) continue;
    const int64_t size = bytes[static_cast<size_t>(item)];
    const auto fits = [&](const Buffer& buffer) {
      return std::max(buffer.most, size) <= 2 * std::min(buffer.least, size) &&
             std::none_of(buffer.items.begin(), buffer.items.end(),
                          [&](int other) { return apart.contains(std::minmax(item, other)); });
    };
    auto at = std::find_if(buffers.begin(), buffers.end(), fits);
    if (at == buffers.end()) at = buffers.insert(buffers.end(), {{}, size, size});
    at->items.push_back(item);
    at->least = std::min(at->least, size);
    at->most = std::max(at->most, size);
    chosen = static_cast<int>(at - buffers.begin());
  }
  for (const Buffer& buffer : buffers) pool.buffer_bytes.push_back(buffer.most);
  return pool;
}

}  // namespace herd::program
