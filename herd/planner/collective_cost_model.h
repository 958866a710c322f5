// Predicts what the collectives of a training step cost. It predicts the time of the algorithm that
// collectives/choose.h picks for the ranks of a mesh axis, where they stand in the topology. A price assumes a core for
// each of the group's ranks; program/simulate.h adds what other work on these cores costs. The group has its share of
// the host's uplink, since all groups of the axis use it at the same time. Where ranks have devices, the topology's
// hosts are as fast as the links between these; what lies in the hosts' memory has a price of its own.
// Threads: one at a time, since it remembers prices.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "herd/program/simulate.h"
#include "herd/topology/topology.h"

namespace herd::planner {

// Returns the hosts of rank 0's group along an axis of the mesh.
Topology group_topology(const Topology& topology, const Mesh& mesh, int axis);

class CollectiveCostModel final : public program::CollectiveCost {
 public:
  enum class Timing : uint8_t {
    kEachSize,  // predicts every size up to 64 MiB; the time of larger ones is linear in their bytes
    kFitLine,   // predicts 64 KiB, 4 MiB and 64 MiB, and draws lines through them; for searches over many layouts
  };
  CollectiveCostModel(Topology topology, DType dtype, Timing timing = Timing::kEachSize)
      : topology_(std::move(topology)), dtype_(dtype), timing_(timing) {}
  program::CollectivePrice price(program::OpKind kind, int64_t bytes, const Mesh& mesh, int axis) const override;
  program::CollectivePrice price_on_host(program::OpKind kind, int64_t bytes, const Mesh& mesh,
                                         int axis) const override;
  // Where the topology has the servers, behind the ranks of the mesh: the busiest uplink sets the pace, of a host whose
  // w ranks send bytes to k servers, of which s are its own, w * bytes * (k - s)/k, or of one that gets s * bytes/k of
  // each rank elsewhere. Source: Jiang et al. 2020, "A Unified Architecture for Accelerating Distributed DNN Training
  // in Heterogeneous GPU/CPU Clusters", OSDI, section 4.
  program::CollectivePrice price_served(int64_t bytes, int servers, const Mesh& mesh, int axis) const override;
  // States the rate at which each rank moves bytes in its host's memory, where ranks have devices of their own.
  CollectiveCostModel& set_host_rate(double bytes_per_us);

  // Models the time as two lines, one up to 4 MiB and one beyond: fixed_us + bytes * us_per_byte.
  struct Line {
    double fixed_us = 0, us_per_byte = 0;            // up to 4 MiB
    double long_fixed_us = 0, long_us_per_byte = 0;  // beyond 4 MiB, where no cache holds it
  };
  using LineCache = std::map<std::string, Line>;
  // Keeps the lines in `cache`, so that models of many meshes on one topology predict equal axes once. Borrows it.
  CollectiveCostModel& share_lines_in(LineCache& cache) {
    shared_lines_ = &cache;
    return *this;
  }

 private:
  double chosen_us(program::OpKind kind, int64_t bytes, const Topology& group) const;
  program::CollectivePrice message_price(int64_t bytes, const Topology& group) const;
  double fitted_us(program::OpKind kind, int64_t bytes, const Axis& axis, const Topology& group) const;

  Topology topology_;
  DType dtype_;
  Timing timing_;
  mutable std::map<std::tuple<program::OpKind, int64_t, std::string>, program::CollectivePrice> known_prices_;
  std::unique_ptr<CollectiveCostModel> on_host_;  // null where devices and host are one
  LineCache* shared_lines_ = nullptr;
  mutable LineCache own_lines_;
};

}  // namespace herd::planner
