#include "herd/collectives/registry.h"

#include <algorithm>
#include <bit>

#include "herd/base/error.h"
#include "herd/collectives/all_gather.h"
#include "herd/collectives/all_reduce_circulant.h"
#include "herd/collectives/all_reduce_direct.h"
#include "herd/collectives/all_reduce_naive.h"
#include "herd/collectives/all_reduce_recursive_doubling.h"
#include "herd/collectives/all_reduce_ring.h"
#include "herd/collectives/all_reduce_staged.h"
#include "herd/collectives/all_reduce_tree.h"
#include "herd/collectives/all_to_all.h"
#include "herd/collectives/barrier.h"
#include "herd/collectives/broadcast.h"
#include "herd/collectives/chain.h"
#include "herd/collectives/composed.h"
#include "herd/collectives/gather.h"
#include "herd/collectives/grid.h"
#include "herd/collectives/reduce.h"
#include "herd/collectives/reduce_scatter.h"
#include "herd/collectives/scatter.h"

namespace herd {
namespace {

// Holds an algorithm and the function that builds its schedule.
struct Entry {
  AlgorithmInfo info;
  Schedule (*build)(const CollectiveRequest&);
  std::string (*limits)(const CollectiveRequest&) = nullptr;  // returns what else it needs, or ""
};

std::string not_in_place(const CollectiveRequest& request) {
  return request.in_place ? "needs input and output in different memory" : "";
}

using enum Needs;

// These functions give the depth of an algorithm, in messages that follow each other.
int along_a_chain(int num_ranks) { return num_ranks; }
int up_and_down_a_tree(int num_ranks) { return 2 * std::bit_width(static_cast<unsigned>(num_ranks - 1)); }

template <Schedule (*build)(const CollectiveRequest&, const AxisStyle&), const AxisStyle& style>
Schedule on_grid(const CollectiveRequest& request) {
  return build(request, style);
}

// These functions say why a request has no grid for the algorithm, or "".
std::string not_on_tiers(const CollectiveRequest& request) { return grid_why_not(request, 0, true); }
std::string not_on_two_axes(const CollectiveRequest& request) { return grid_why_not(request, 2, false); }
std::string not_on_three_axes(const CollectiveRequest& request) { return grid_why_not(request, 3, false); }
std::string not_on_a_grid(const CollectiveRequest& request) { return grid_why_not(request, 0, false); }
std::string not_on_hosts(const CollectiveRequest& request) {
  const size_t hosts = ranks_by_host(request).size();
  return hosts > 1 && hosts < static_cast<size_t>(request.num_ranks) ? "" : "needs several hosts of several ranks";
}

const Entry kTable[] = {
    {{Collective::kAllReduce, "ring", kMessages, "reduce-scatter and all-gather around a ring"}, all_reduce_ring},
    {{Collective::kAllReduce, "direct_pull", kSymmetricMemory, "reduce own part out of peers' memory, copy the others"},
     all_reduce_direct_pull},
    {{Collective::kAllReduce, "direct_push", kSymmetricMemory, "reduce own part into everybody's memory in one pass"},
     all_reduce_direct_push},
    {{Collective::kAllReduce, "staged", kStage,
      "through stage memory; one synchronisation when small, pieces when large"},
     all_reduce_staged},
    {{Collective::kAllReduce, "naive", kMessages, "every rank sends all to every other"}, all_reduce_naive},
    {{Collective::kAllReduce, "binomial_tree", kMessages, "segments up and down a binomial tree", up_and_down_a_tree,
      true},
     all_reduce_binomial_tree},
    {{Collective::kAllReduce, "double_tree", kMessages, "segments up and down two binary trees, half each",
      up_and_down_a_tree, true},
     all_reduce_double_tree},
    {{Collective::kAllReduce, "recursive_doubling", kMessages, "exchange of everything over doubling distances"},
     all_reduce_recursive_doubling},
    {{Collective::kAllReduce, "halving_doubling", kMessages, "recursive halving, then recursive doubling"},
     all_reduce_halving_doubling},
    {{Collective::kAllReduce, "circulant", kMessages,
      "halving and doubling over circulant distances, any number of ranks"},
     all_reduce_circulant},
    {{Collective::kAllReduce, "chain", kMessages, "segments along a chain to the middle and back", along_a_chain, true},
     all_reduce_chain},
    {{Collective::kAllReduce, "hierarchical_tree", kMessages,
      "reduce to one rank of each host, these all-reduce, broadcast"},
     all_reduce_hierarchical_tree,
     not_on_hosts},
    {{Collective::kAllReduce, "hierarchical", kMessages, "by tiers: through memory inside hosts, circulant between"},
     on_grid<all_reduce_on_grid, kHierarchical>,
     not_on_tiers},
    {{Collective::kAllReduce, "torus_2d", kMessages, "rings on both axes"},
     on_grid<all_reduce_on_grid, kTorus2d>,
     not_on_two_axes},
    {{Collective::kAllReduce, "torus_3d", kMessages, "rings on three axes"},
     on_grid<all_reduce_on_grid, kTorus3d>,
     not_on_three_axes},
    {{Collective::kAllReduce, "torus_nd", kMessages, "rings on every axis"},
     on_grid<all_reduce_on_grid, kTorusNd>,
     not_on_a_grid},
    {{Collective::kAllReduce, "mesh_2d", kMessages, "chains on both axes", nullptr, true},
     on_grid<all_reduce_on_grid, kMesh2d>,
     not_on_two_axes},
    {{Collective::kAllGather, "ring", kMessages, "parts travel around a ring"}, all_gather_ring},
    {{Collective::kAllGather, "direct_pull", kSymmetricMemory, "read each part out of its owner's memory"},
     all_gather_direct_pull},
    {{Collective::kAllGather, "direct_push", kSymmetricMemory, "write own part into everybody's memory in one pass"},
     all_gather_direct_push},
    {{Collective::kAllGather, "staged", kStage, "pieces through two stage slots"}, all_gather_staged},
    {{Collective::kAllGather, "bruck", kMessages, "packed parts over doubling distances"}, all_gather_bruck},
    {{Collective::kAllGather, "recursive_doubling", kMessages, "exchange of all parts held over doubling distances"},
     all_gather_recursive_doubling},
    {{Collective::kAllGather, "circulant", kMessages, "parts over circulant distances, any number of ranks"},
     all_gather_circulant},
    {{Collective::kAllGather, "chain", kMessages, "parts travel along a chain both ways"}, all_gather_chain},
    {{Collective::kAllGather, "hierarchical", kMessages, "by tiers: through memory inside hosts, circulant between"},
     on_grid<all_gather_on_grid, kHierarchical>,
     not_on_tiers},
    {{Collective::kAllGather, "torus_2d", kMessages, "rings on both axes"},
     on_grid<all_gather_on_grid, kTorus2d>,
     not_on_two_axes},
    {{Collective::kAllGather, "torus_3d", kMessages, "rings on three axes"},
     on_grid<all_gather_on_grid, kTorus3d>,
     not_on_three_axes},
    {{Collective::kAllGather, "torus_nd", kMessages, "rings on every axis"},
     on_grid<all_gather_on_grid, kTorusNd>,
     not_on_a_grid},
    {{Collective::kAllGather, "mesh_2d", kMessages, "chains on both axes"},
     on_grid<all_gather_on_grid, kMesh2d>,
     not_on_two_axes},
    {{Collective::kReduceScatter, "ring", kMessages, "partial sums travel around a ring"}, reduce_scatter_ring},
    {{Collective::kReduceScatter, "direct_pull", kSymmetricMemory, "reduce own part out of peers' memory"},
     reduce_scatter_direct_pull},
    {{Collective::kReduceScatter, "staged", kStage, "pieces through two stage slots"}, reduce_scatter_staged},
    {{Collective::kReduceScatter, "halving", kMessages, "one half of the partial sums over halving distances"},
     reduce_scatter_halving},
    {{Collective::kReduceScatter, "pairwise", kMessages, "each step sends one part to its owner"},
     reduce_scatter_pairwise},
    {{Collective::kReduceScatter, "circulant", kMessages, "partial sums over circulant distances, any number of ranks"},
     reduce_scatter_circulant},
    {{Collective::kReduceScatter, "chain", kMessages, "partial sums travel along a chain from both ends"},
     reduce_scatter_chain},
    {{Collective::kReduceScatter, "hierarchical", kMessages,
      "by tiers: through memory inside hosts, circulant between"},
     on_grid<reduce_scatter_on_grid, kHierarchical>,
     not_on_tiers},
    {{Collective::kReduceScatter, "torus_2d", kMessages, "rings on both axes"},
     on_grid<reduce_scatter_on_grid, kTorus2d>,
     not_on_two_axes},
    {{Collective::kReduceScatter, "torus_3d", kMessages, "rings on three axes"},
     on_grid<reduce_scatter_on_grid, kTorus3d>,
     not_on_three_axes},
    {{Collective::kReduceScatter, "torus_nd", kMessages, "rings on every axis"},
     on_grid<reduce_scatter_on_grid, kTorusNd>,
     not_on_a_grid},
    {{Collective::kReduceScatter, "mesh_2d", kMessages, "chains on both axes"},
     on_grid<reduce_scatter_on_grid, kMesh2d>,
     not_on_two_axes},
    {{Collective::kBroadcast, "binomial", kMessages, "holders of the message double each round"}, broadcast_binomial},
    {{Collective::kBroadcast, "direct_pull", kSymmetricMemory, "every rank copies out of root's memory"},
     broadcast_direct_pull},
    {{Collective::kBroadcast, "direct_push", kSymmetricMemory,
      "each rank copies its part of root's memory to everybody"},
     broadcast_direct_push},
    {{Collective::kBroadcast, "staged", kStage, "pieces through two slots of root's stage"}, broadcast_staged},
    {{Collective::kBroadcast, "scatter_all_gather", kMessages, "parts down a tree, then around a ring"},
     broadcast_scatter_all_gather},
    {{Collective::kBroadcast, "chain", kMessages, "segments from rank to rank", along_a_chain, true}, broadcast_chain},
    {{Collective::kReduce, "binomial", kMessages, "partial sums go up a binomial tree"}, reduce_binomial},
    {{Collective::kReduce, "direct_push", kSymmetricMemory, "reduce own part into root's memory"}, reduce_direct_push},
    {{Collective::kReduce, "staged", kStage, "pieces through two stage slots, summed by root"}, reduce_staged},
    {{Collective::kBarrier, "dissemination_send", kMessages, "empty messages over doubling distances"},
     barrier_dissemination_send},
    {{Collective::kBarrier, "dissemination_signal", kStage, "signals over doubling distances"},
     barrier_dissemination_signal},
    {{Collective::kBarrier, "direct_signal", kStage, "a signal to every other rank"}, barrier_direct_signal},
    {{Collective::kGather, "linear", kMessages, "every rank sends its part to root"}, gather_linear},
    {{Collective::kGather, "binomial", kMessages, "parts go up a binomial tree"}, gather_binomial},
    {{Collective::kGather, "direct_push", kSymmetricMemory, "every rank writes its part into root's memory"},
     gather_direct_push},
    {{Collective::kGather, "staged", kStage, "pieces through two stage slots, copied out by root"}, gather_staged},
    {{Collective::kScatter, "linear", kMessages, "root sends every rank its part"}, scatter_linear},
    {{Collective::kScatter, "binomial", kMessages, "parts go down a binomial tree"}, scatter_binomial},
    {{Collective::kScatter, "direct_pull", kSymmetricMemory, "every rank copies its part out of root's memory"},
     scatter_direct_pull},
    {{Collective::kScatter, "staged", kStage, "pieces through two slots of root's stage"}, scatter_staged},
    {{Collective::kAllToAll, "pairwise", kMessages, "each step sends to one rank and receives from another"},
     all_to_all_pairwise},
    {{Collective::kAllToAll, "bruck", kMessages, "packed blocks over doubling distances"}, all_to_all_bruck},
    {{Collective::kAllToAll, "direct_pull", kSymmetricMemory, "read each block out of its owner's memory"},
     all_to_all_direct_pull,
     not_in_place},
    {{Collective::kAllToAll, "staged", kStage, "pieces of all blocks through two stage slots"}, all_to_all_staged},
    {{Collective::kAllToAll, "hierarchical", kMessages,
      "inside hosts to the rank that stands like the owner, then between hosts"},
     all_to_all_hierarchical,
     not_on_tiers},
};

}  // namespace

std::vector<AlgorithmInfo> algorithms(Collective collective) {
  std::vector<AlgorithmInfo> found;
  for (const Entry& entry : kTable) {
    if (entry.info.collective == collective) found.push_back(entry.info);
  }
  return found;
}

std::string_view canonical_name(Collective collective, std::string_view algorithm) {
  using namespace std::literals;
  if (collective == Collective::kAllReduce) {
    if (algorithm == "butterfly"sv) return "recursive_doubling";
    if (algorithm == "rabenseifner"sv) return "halving_doubling";
    if (algorithm == "tree"sv) return "binomial_tree";
  }
  const bool on_chain = collective == Collective::kAllReduce || collective == Collective::kAllGather ||
                        collective == Collective::kReduceScatter;
  return on_chain && algorithm == "path"sv ? "chain" : algorithm;
}

std::string names_with_segments(Collective collective) {
  std::string names;
  for (const AlgorithmInfo& info : algorithms(collective)) {
    if (info.has_segments) names += (names.empty() ? "" : ", ") + std::string(info.name);
  }
  return names.empty() ? "none" : names;
}

bool has_segments(Collective collective, std::string_view algorithm) {
  const auto all = algorithms(collective);
  algorithm = canonical_name(collective, algorithm);
  return std::any_of(all.begin(), all.end(),
                     [&](const AlgorithmInfo& info) { return info.name == algorithm && info.has_segments; });
}

std::string why_not(const AlgorithmInfo& algorithm, const CollectiveRequest& request) {
  if (algorithm.needs == kStage && !request.same_host) return "needs all ranks on one host";
  if (algorithm.needs == kSymmetricMemory && !(request.direct && request.same_host))
    return "needs buffers in symmetric memory";
  for (const Entry& entry : kTable) {
    const bool matches = entry.info.collective == algorithm.collective && entry.info.name == algorithm.name;
    if (matches && entry.limits) return entry.limits(request);
  }
  return "";
}

Schedule build_schedule(std::string_view algorithm, const CollectiveRequest& request) {
  algorithm = canonical_name(request.collective, algorithm);
  std::string valid;
  for (const Entry& entry : kTable) {
    if (entry.info.collective != request.collective) continue;
    if (entry.info.name != algorithm) {
      valid += (valid.empty() ? "" : ", ") + std::string(entry.info.name);
      continue;
    }
    if (const std::string reason = why_not(entry.info, request); !reason.empty()) {
      throw Error(Code::kBadConfig, std::string(collective_name(request.collective)) + " by \"" +
                                        std::string(algorithm) + "\" " + reason +
                                        "\n  fix: another algorithm (herd explain lists them), or none: herd chooses");
    }
    if (request.segment_bytes > 0 && !entry.info.has_segments) {
      throw Error(Code::kBadConfig,
                  std::string(collective_name(request.collective)) + " by \"" + std::string(algorithm) +
                      "\" has no segments, but " + std::to_string(request.segment_bytes) +
                      " bytes are asked for\n  fix: no segment size, or an algorithm that has some: " +
                      names_with_segments(request.collective));
    }
    return entry.build(request);
  }
  throw Error(Code::kBadConfig, std::string(collective_name(request.collective)) + " has no algorithm \"" +
                                    std::string(algorithm) + "\"\n  fix: one of " + valid);
}

}  // namespace herd
