// Small numbers that every dtype holds, and whose results by every op it holds too, for up to 17 ranks: so results are
// compared bit for bit. They repeat every kPeriod elements.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/base/reduce_op.h"
#include "herd/schedule/meaning.h"
#include "tests/comm/collective_check.h"

namespace herd::testing_support {

inline constexpr int64_t kPeriod = 15;

// What `rank` gives at element k of the period, an integer.
inline int given_value(ReduceOp op, DType dtype, int n, Rank rank, int64_t k) {
  const int plain = (rank * 3 + static_cast<int>(k)) % 5;
  if (dtype == DType::kBool) return plain != 0;
  if (op == ReduceOp::kProduct) return (rank + k) % 8 == 0 ? 2 : 1;
  if (op == ReduceOp::kAverage) return rank == k % n ? n * static_cast<int>(k % 3) : 0;
  return plain;
}

// What all ranks' values make. `factor(rank)` for premultiplied sums.
inline double reduced_value(ReduceOp op, DType dtype, int n, int64_t k, double (*factor)(Rank)) {
  int bits = given_value(op, dtype, n, 0, k);
  double result = bits * (op == ReduceOp::kPremultipliedSum ? factor(0) : 1);
  for (Rank rank = 1; rank < n; ++rank) {
    const int next = given_value(op, dtype, n, rank, k);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result += next;
        break;
      case ReduceOp::kPremultipliedSum:
        result += next * factor(rank);
        break;
      case ReduceOp::kProduct:
        result *= next;
        break;
      case ReduceOp::kMin:
        result = std::min<double>(result, next);
        break;
      case ReduceOp::kMax:
        result = std::max<double>(result, next);
        break;
      case ReduceOp::kAnd:
        result = bits &= next;
        break;
      case ReduceOp::kOr:
        result = bits |= next;
        break;
      case ReduceOp::kXor:
        result = bits ^= next;
        break;
    }
  }
  return op == ReduceOp::kAverage ? result / n : result;
}

// One period of some dtype, and memory filled with it or compared with it.
class Tile {
 public:
  template <typename Value>
  Tile(DType dtype, Value&& value) : size_(size_of(dtype)), bytes_(static_cast<size_t>(kPeriod * size_)) {
    for (int64_t k = 0; k < kPeriod; ++k) store(dtype, bytes_.data(), k, static_cast<double>(value(k)));
  }
  // `first`: which element of the whole message lies at `at`.
  void fill(std::byte* at, int64_t first, int64_t count) const {
    walk(first, count, [&](int64_t i, const std::byte* tile, size_t bytes) { std::memcpy(at + i, tile, bytes); });
  }
  bool equals(const std::byte* at, int64_t first, int64_t count) const {
    bool equal = true;
    walk(first, count,
         [&](int64_t i, const std::byte* tile, size_t bytes) { equal &= std::memcmp(at + i, tile, bytes) == 0; });
    return equal;
  }

 private:
  template <typename Visit>
  void walk(int64_t first, int64_t count, Visit&& visit) const {
    for (int64_t i = 0; i < count;) {
      const int64_t k = (first + i) % kPeriod, piece = std::min(kPeriod - k, count - i);
      visit(i * size_, bytes_.data() + k * size_, static_cast<size_t>(piece * size_));
      i += piece;
    }
  }
  int64_t size_;
  std::vector<std::byte> bytes_;
};

// An operation's memory on one rank, before and after it, by the definition in schedule/meaning.h.
class ExactOperation {
 public:
  ExactOperation(const Schedule& header, ReduceOp op, double (*factor)(Rank))
      : header_(header), op_(op), factor_(factor) {}

  void fill(std::byte* in, std::byte* out) const {
    std::memset(out, 0x5a, static_cast<size_t>(space_size(header_, header_.self, Space::kOutput) * size()));
    for (const MessagePiece& place : initial_contributions(header_, header_.self)) {
      std::byte* at = (place.space == Space::kInput ? in : out) + place.range.begin * size();
      tile_of(place.contributor).fill(at, place.message_begin, place.range.size());
    }
  }
  bool right(const std::byte* out) const {
    for (const MessagePiece& place : expected_results(header_, header_.self)) {
      if (!tile_of(place.contributor).equals(out + place.range.begin * size(), place.message_begin, place.range.size()))
        return false;
    }
    return true;
  }

 private:
  int64_t size() const { return size_of(header_.dtype); }
  Tile tile_of(Rank rank) const {
    const int n = header_.num_ranks;
    if (rank == kEveryRank) {
      return {header_.dtype, [&](int64_t k) { return reduced_value(op_, header_.dtype, n, k, factor_); }};
    }
    return {header_.dtype, [&](int64_t k) { return given_value(op_, header_.dtype, n, rank, k); }};
  }
  const Schedule& header_;
  ReduceOp op_;
  double (*factor_)(Rank);
};

}  // namespace herd::testing_support
