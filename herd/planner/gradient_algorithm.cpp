#include "herd/planner/gradient_algorithm.h"

#include <algorithm>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/collectives/choose.h"
#include "herd/strategies/replicas.h"
#include "herd/topology/presets.h"

namespace herd::planner {

void check_gradient_algorithm(const spec::RunFile& run, const spec::Layout& layout,
                              const std::optional<Topology>& topology) {
  const std::string& name = run.comm.algorithm;
  if (name == "auto") return;
  const std::vector<AlgorithmInfo> all = algorithms(Collective::kAllReduce);
  const auto found = std::ranges::find(all, canonical_name(Collective::kAllReduce, name), &AlgorithmInfo::name);
  if (found == all.end()) {
    std::string valid = "auto";
    for (const AlgorithmInfo& info : all) valid += ", " + std::string(info.name);
    throw Error(Code::kBadConfig,
                "comm.algorithm = \"" + name + "\": all_reduce has no algorithm of this name\n  fix: one of " + valid);
  }
  if (layout.gradient_ranks() == 1) return;
  const int axis = strategies::all_reduced_axis(run, layout);
  if (axis == kNoAxis)
    throw Error(Code::kBadConfig, "comm.algorithm = \"" + name +
                                      "\" is of the gradient all-reduce, but strategy.zero = " +
                                      std::to_string(spec::stated_zero_stage(run)) +
                                      " sums gradients by reduce-scatters alone\n  fix: "
                                      "comm.algorithm = \"auto\", or " +
                                      (layout.fsdp > 1 ? "mesh.fsdp = 1 with " : "") + "strategy.zero = 0");
  if (!topology) return;
  const std::vector<int> ranks = layout.mesh.ranks(axis, 0);
  const Topology among = only_ranks(*topology, ranks);
  const bool one_host = among.hosts.size() == 1;
  const CollectiveRequest request = placed_on({.num_ranks = static_cast<int>(ranks.size()),
                                               .elements = int64_t{1} << 20,
                                               .in_place = true,
                                               .direct = one_host,
                                               .same_host = one_host},
                                              among);
  const std::string reason = why_not(*found, request);
  if (reason.empty()) return;
  throw Error(Code::kBadConfig, "comm.algorithm = \"" + name + "\" " + reason + ", but gradients are summed by " +
                                    std::to_string(ranks.size()) + " ranks on \"" + topology->name +
                                    "\"\n  fix: another algorithm (herd explain all_reduce lists them), or "
                                    "comm.algorithm = \"auto\"");
}

}  // namespace herd::planner
