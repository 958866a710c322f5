// How a value lies on the axes of a program's mesh. Along each axis it is
//   whole    every rank of a group has the same
//   a shard  every rank has its own part; the parts of all ranks are the value
//   partial  every rank has a term; the sum of all ranks' terms is the value
// Several axes may cut one value, and an axis of one rank (kNoAxis) cuts nothing.
// Threads: plain data.
#pragma once

#include <compare>
#include <cstdint>

namespace herd::program {

inline constexpr int kMostAxes = 32;  // of a program's mesh

struct Placement {
  uint32_t shard = 0;    // bit i is set where axis i of the mesh cuts the value
  uint32_t partial = 0;  // bit i is set where the sum along axis i is the value
  auto operator<=>(const Placement&) const = default;

  constexpr bool is_whole() const { return (shard | partial) == 0; }  // along every axis
  constexpr bool is_shard(int axis) const { return (shard & bit(axis)) != 0; }
  constexpr bool is_partial(int axis) const { return (partial & bit(axis)) != 0; }

  // The same placement, changed along one axis.
  constexpr Placement whole_on(int axis) const { return {shard & ~bit(axis), partial & ~bit(axis)}; }
  constexpr Placement shard_on(int axis) const { return {shard | bit(axis), partial & ~bit(axis)}; }
  constexpr Placement partial_on(int axis) const { return {shard & ~bit(axis), partial | bit(axis)}; }

 private:
  static constexpr uint32_t bit(int axis) { return axis < 0 ? 0 : uint32_t{1} << axis; }
};

inline constexpr Placement kWhole = {};

}  // namespace herd::program
