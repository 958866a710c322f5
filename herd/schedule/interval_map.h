// Holds a value for every element of [0, infinity), T{} at first, by intervals: time and memory grow with the cuts, not
// with elements.
// Threads: plain data.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace herd {

template <typename T>
class IntervalMap {
 public:
  IntervalMap() { cuts_[0] = T{}; }

  // Calls visit(begin, end, T&) for each interval of [begin, end), cut at both ends.
  template <typename Visit>
  void update(int64_t begin, int64_t end, Visit&& visit) {
    if (begin >= end) return;
    auto at = cut(begin);
    const auto last = cut(end);
    while (at != last) {
      const auto next = std::next(at);
      visit(at->first, next->first, at->second);
      at = next;
    }
  }

  // Gives the elements of [begin, end) this value, as one interval.
  void assign(int64_t begin, int64_t end, T value) {
    if (begin >= end) return;
    const auto first = cut(begin);
    const auto last = cut(end);
    first->second = std::move(value);
    cuts_.erase(std::next(first), last);
  }

 private:
  using Iterator = typename std::map<int64_t, T>::iterator;

  Iterator cut(int64_t at) {
    auto after = cuts_.upper_bound(at);
    const auto holder = std::prev(after);
    if (holder->first == at) return holder;
    return cuts_.emplace_hint(after, at, holder->second);
  }

  std::map<int64_t, T> cuts_;  // begin of each interval -> its value; it ends where the next begins
};

}  // namespace herd
