// Builds collectives over a grid of ranks (grid.h) from the collectives of its axes (n ranks, S message bytes; axis 0
// has m ranks).
//   hierarchical       axes inside hosts through their memory (direct or staged), the others by circulant exchange.
//                      Needs two axes or more.
//     all_reduce       reduce-scatter on each axis but the last, all-reduce on the last, all-gathers back: between two
//                      tiers of m and h ranks 2(h-1)/h * S/m bytes sent per rank.
//     reduce_scatter   on axis 0, 1, ..: what reaches axis 1 is S/m.        all_gather: the same backwards.
//     all_to_all       inside a host data goes to the rank that has the same place in its host as the destination, then
//                      between hosts: as many bytes as pairwise, in h-1 messages instead of (h-1) * m.
//   hierarchical_tree  all_reduce: reduce to the first rank of each host, circulant all-reduce among these, broadcast;
//                      hosts may have different numbers of ranks.
//   torus_2d, torus_3d, torus_nd   the same compositions with rings on every axis: 2(n-1)/n * S bytes sent per rank,
//                      sum over axes of 2(d-1) steps (d ranks on the axis).
//   mesh_2d            chains on every axis (chain.h). all_reduce: an all-reduce of everything on each axis in turn.
//   Order: along axis 0, then 1, ..; every rank has the same bits, since each part is summed at one place.
// Source: Jocksch et al. 2021, doi:10.1109/MPI54564.2021.00009 (hierarchies); Chan, Heimlich, Purkayastha & van de
// Geijn 2007, doi:10.1002/cpe.1206 (tori and meshes); Ying et al. 2018, arXiv:1811.06992 (2D torus).   Threads: pure.
#pragma once

#include <string>

#include "herd/collectives/request.h"

namespace herd {

// AxisStyle names the algorithms that the axes' collectives use.
struct AxisStyle {
  std::string_view name;                          // of the composed algorithm
  bool shared_memory = false;                     // axes inside hosts use their memory
  std::string_view between_hosts_algorithm = {};  // for reduce-scatter, all-gather and all-reduce on other axes
  bool reduces_whole_message_per_axis = false;    // an all-reduce reduces the whole message on each axis in turn
};

inline constexpr AxisStyle kHierarchical{"hierarchical", true, "circulant"};
inline constexpr AxisStyle kTorus2d{"torus_2d", false, "ring"};
inline constexpr AxisStyle kTorus3d{"torus_3d", false, "ring"};
inline constexpr AxisStyle kTorusNd{"torus_nd", false, "ring"};
inline constexpr AxisStyle kMesh2d{"mesh_2d", false, "chain", true};

Schedule all_reduce_on_grid(const CollectiveRequest& request, const AxisStyle& style);
Schedule all_gather_on_grid(const CollectiveRequest& request, const AxisStyle& style);
Schedule reduce_scatter_on_grid(const CollectiveRequest& request, const AxisStyle& style);
Schedule all_to_all_hierarchical(const CollectiveRequest& request);
Schedule all_reduce_hierarchical_tree(const CollectiveRequest& request);

// Returns why a request has no grid of `num_axes` axes (0: two or more); empty if it has one. With
// `first_axis_inside_hosts`, axis 0 must lie inside hosts, too.
std::string grid_why_not(const CollectiveRequest& request, int num_axes, bool first_axis_inside_hosts);

}  // namespace herd
