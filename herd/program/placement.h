// Defines how a value lies on the axes of a program's mesh. Along each axis it is one of these:
//   whole    means that every rank of a group along the axis holds all of the value.
//   shard    means that every rank holds a part of its own, and the parts of all ranks are the value. A part is a range
//            of rows, or of heads, or the rows of one rank's experts (Dimension).
//   partial  means that every rank holds a term, and the sum of all ranks' terms is the value.
//   owned    means that one rank, its owner, holds all of the value, and the others hold nothing.
// Several axes may cut one value. kNoAxis stands for an axis of one rank, along which a value is always whole.
// Threads: plain data.
#pragma once

#include <compare>
#include <cstdint>

namespace herd::program {

inline constexpr int kMaxAxes = 32;  // axes that a program's mesh may have, a bit each

// Names the dimension along which an axis cuts a value. The parts of weights, gradients and states are ranges of their
// elements, which count as rows. By experts, a rank has the rows of all ranks of the axis whose expert it holds; before
// these rows have come, and after they have gone back, each rank has those of its own tokens, which nothing cuts.
enum class Dimension : uint8_t { kRows, kHeads, kExperts };

struct Placement {
  uint32_t shard = 0;    // bit i is set if axis i of the mesh cuts the value
  uint32_t partial = 0;  // bit i is set if the sum along axis i is the value
  uint32_t heads = 0;    // bit i is set if axis i cuts the value, by heads; axes of `shard` alone cut it by rows
  uint32_t owned = 0;    // bit i is set if one rank along axis i holds the value, and the others nothing
  uint32_t experts = 0;  // bit i is set if axis i cuts the value, by experts
  auto operator<=>(const Placement&) const = default;

  // Tells whether it is whole along every axis.
  constexpr bool is_whole() const { return (shard | partial | owned) == 0; }
  constexpr bool is_shard(int axis) const { return (shard & bit(axis)) != 0; }
  constexpr bool is_partial(int axis) const { return (partial & bit(axis)) != 0; }
  constexpr bool is_owned(int axis) const { return (owned & bit(axis)) != 0; }
  // Returns the dimension along which the axis cuts the value. REQUIRES is_shard(axis).
  constexpr Dimension dimension(int axis) const {
    if ((experts & bit(axis)) != 0) return Dimension::kExperts;
    return (heads & bit(axis)) != 0 ? Dimension::kHeads : Dimension::kRows;
  }

  // Each returns this placement with that of one axis replaced; kNoAxis changes nothing.
  constexpr Placement whole_on(int axis) const {
    return {shard & ~bit(axis), partial & ~bit(axis), heads & ~bit(axis), owned & ~bit(axis), experts & ~bit(axis)};
  }
  constexpr Placement shard_on(int axis, Dimension by = Dimension::kRows) const {
    Placement out = whole_on(axis);
    out.shard |= bit(axis);
    if (by == Dimension::kHeads) out.heads |= bit(axis);
    if (by == Dimension::kExperts) out.experts |= bit(axis);
    return out;
  }
  constexpr Placement partial_on(int axis) const {
    Placement out = whole_on(axis);
    out.partial |= bit(axis);
    return out;
  }
  constexpr Placement owned_on(int axis) const {
    Placement out = whole_on(axis);
    out.owned |= bit(axis);
    return out;
  }

 private:
  static constexpr uint32_t bit(int axis) { return axis < 0 ? 0 : uint32_t{1} << axis; }
};

inline constexpr Placement kWhole = {};

}  // namespace herd::program
