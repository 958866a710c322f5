// Defines the ranks of a job as a grid, and the axes along which they work together. Groups of ranks, gradient sums,
// shards, checkpoints, prices and proofs all follow from this table.
//   An axis is a list of (stride, size) over rank numbers, so a product of axes (replicas x shards) is an axis, too. It
//   may name the members that take part (the first and the last pipeline stage share an embedding). Ranks that differ
//   along one axis alone, and are members of it, are one group of that axis.
//   An axis also says what its ranks divide among them. So whoever has to know which part of the samples a rank has, or
//   along which axis a sum over all tokens runs, asks the table, and no axis has to be known by name.
// Threads: plain data, pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace herd {

// Names what ranks divide among them, so that each has a part of its own; several are joined by |.
enum class Divided : uint8_t {
  kNothing = 0,
  kSamples = 1,   // of a batch
  kTokens = 2,    // of each sample
  kLayers = 4,    // the work of each layer on each sample
  kStages = 8,    // of a pipeline
  kExperts = 16,  // of each layer
};
constexpr Divided operator|(Divided a, Divided b) {
  return static_cast<Divided>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}
constexpr Divided operator&(Divided a, Divided b) {
  return static_cast<Divided>(static_cast<uint8_t>(a) & static_cast<uint8_t>(b));
}

// A factor has `size` ranks r, r + stride, r + 2 stride, ..
struct Factor {
  int stride = 1;
  int size = 1;
  bool operator==(const Factor&) const = default;
};

struct Axis {
  std::string name;               // "dp", "dp*fsdp"
  std::vector<Factor> factors;    // outermost first; a place on the axis counts the last factor fastest
  std::vector<int> members = {};  // places that take part, ascending; empty = all of them
  // What its ranks divide. The ranks of an axis that divides samples, say, are all that have samples of their own, so
  // one axis alone says so of them, not its factors or parts of it.
  Divided divides = Divided::kNothing;
  int places() const;  // returns the product of the factors' sizes
  int size() const;    // returns the ranks of a group: the members, else all places
  bool operator==(const Axis&) const = default;
};

inline constexpr int kNoAxis = -1;  // names an axis of one rank, which is in no table

struct Mesh {
  int world_size = 1;
  std::vector<Axis> axes = {};  // of two places or more; an axis is named by its index here, or kNoAxis
  bool operator==(const Mesh&) const = default;

  int find(std::string_view name) const;  // returns kNoAxis if no axis has that name
  // Returns the axis whose ranks divide all of `what` that any ranks of this mesh divide; kNoAxis if none does.
  int dividing(Divided what) const;
  int size(int axis) const;  // returns the ranks of a group; 1 for kNoAxis
  // Returns the rank's index in its group along the axis; -1 if it is no member, 0 for kNoAxis.
  int index(int axis, int rank) const;
  // Returns the rank at this index of the group that `rank` is in, or would be in if it were a member.
  int peer(int axis, int rank, int index) const;
  std::vector<int> ranks(int axis, int rank) const;  // returns the ranks of that group, by index
};

// Returns the axis whose groups join those of both; `outer` counts slower. REQUIRES factors that do not overlap.
Axis product(const Axis& outer, const Axis& inner);

// Returns the axis restricted to these of its places, ascending.
Axis restricted(const Axis& axis, std::vector<int> members);

}  // namespace herd
