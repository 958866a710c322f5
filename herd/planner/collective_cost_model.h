// Predicts what the collectives of a training step cost. It times the algorithm that collectives/choose.h picks for the
// ranks of a mesh axis, where they stand in the topology. A group's ranks of one host work on cores of their own; the
// simulation of the step adds other work on them. The group has its share of the host's uplink, since all groups of the
// axis use it at the same time.
// Threads: one at a time, since it remembers prices.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "herd/program/simulate.h"
#include "herd/topology/topology.h"

namespace herd::planner {

// Returns the hosts of rank 0's group along an axis of the mesh.
Topology group_topology(const Topology& topology, const Mesh& mesh, int axis);

class CollectiveCostModel final : public program::CollectiveCost {
 public:
  enum class Sizes : uint8_t {
    kEach,  // times every size up to 64 MiB; larger ones lie on a line
    kLine,  // times 64 KiB, 4 MiB and 64 MiB, other sizes lie on lines through them; for searches over many layouts
  };
  CollectiveCostModel(Topology topology, DType dtype, Sizes sizes = Sizes::kEach)
      : topology_(std::move(topology)), dtype_(dtype), sizes_(sizes) {}
  program::CollectivePrice price(program::OpKind kind, int64_t bytes, const Mesh& mesh, int axis) const override;

  // Shares lines among many meshes on one topology: axes that are equal are timed once.
  struct Line {
    double fixed_us = 0, us_per_byte = 0;            // up to 4 MiB
    double long_fixed_us = 0, long_us_per_byte = 0;  // beyond 4 MiB, where no cache holds it
  };
  using LineCache = std::map<std::string, Line>;
  CollectiveCostModel& share_lines_in(LineCache& memory) {
    shared_ = &memory;
    return *this;
  }

 private:
  double chosen_us(program::OpKind kind, int64_t bytes, const Topology& group) const;
  program::CollectivePrice message_price(int64_t bytes, const Topology& group) const;
  double line_us(program::OpKind kind, int64_t bytes, const Axis& axis, const Topology& group) const;

  Topology topology_;
  DType dtype_;
  Sizes sizes_;
  mutable std::map<std::tuple<program::OpKind, int64_t, std::string>, program::CollectivePrice> known_;
  LineCache* shared_ = nullptr;
  mutable LineCache own_;
};

}  // namespace herd::planner
