#include "herd/collectives/registry.h"

#include "herd/base/error.h"
#include "herd/collectives/all_gather.h"
#include "herd/collectives/all_reduce_direct.h"
#include "herd/collectives/all_reduce_ring.h"
#include "herd/collectives/all_reduce_staged.h"
#include "herd/collectives/all_to_all.h"
#include "herd/collectives/barrier.h"
#include "herd/collectives/broadcast.h"
#include "herd/collectives/gather.h"
#include "herd/collectives/reduce.h"
#include "herd/collectives/reduce_scatter.h"
#include "herd/collectives/scatter.h"

namespace herd {
namespace {

struct Entry {
  AlgorithmInfo info;
  Schedule (*build)(const CollectiveRequest&);
  std::string (*limits)(const CollectiveRequest&) = nullptr;  // what more it needs, as why_not() says it
};

std::string not_in_place(const CollectiveRequest& request) {
  return request.in_place ? "needs input and output in different memory" : "";
}

using enum Needs;

const Entry kTable[] = {
    {{Collective::kAllReduce, "ring", kMessages, "reduce-scatter and all-gather around a ring"}, all_reduce_ring},
    {{Collective::kAllReduce, "direct_pull", kSymmetricMemory, "reduce own part out of peers' memory, copy the others"},
     all_reduce_direct_pull},
    {{Collective::kAllReduce, "direct_push", kSymmetricMemory, "reduce own part into everybody's memory in one pass"},
     all_reduce_direct_push},
    {{Collective::kAllReduce, "staged", kStage,
      "through stage memory; one synchronisation when small, pieces when large"},
     all_reduce_staged},
    {{Collective::kAllGather, "ring", kMessages, "parts travel around a ring"}, all_gather_ring},
    {{Collective::kAllGather, "direct_pull", kSymmetricMemory, "read each part out of its owner's memory"},
     all_gather_direct_pull},
    {{Collective::kAllGather, "direct_push", kSymmetricMemory, "write own part into everybody's memory in one pass"},
     all_gather_direct_push},
    {{Collective::kAllGather, "staged", kStage, "pieces through two stage slots"}, all_gather_staged},
    {{Collective::kReduceScatter, "ring", kMessages, "partial sums travel around a ring"}, reduce_scatter_ring},
    {{Collective::kReduceScatter, "direct_pull", kSymmetricMemory, "reduce own part out of peers' memory"},
     reduce_scatter_direct_pull},
    {{Collective::kReduceScatter, "staged", kStage, "pieces through two stage slots"}, reduce_scatter_staged},
    {{Collective::kBroadcast, "binomial", kMessages, "holders of the message double each round"}, broadcast_binomial},
    {{Collective::kBroadcast, "direct_pull", kSymmetricMemory, "every rank copies out of root's memory"},
     broadcast_direct_pull},
    {{Collective::kBroadcast, "staged", kStage, "pieces through two slots of root's stage"}, broadcast_staged},
    {{Collective::kReduce, "binomial", kMessages, "partial sums go up a binomial tree"}, reduce_binomial},
    {{Collective::kReduce, "direct_push", kSymmetricMemory, "reduce own part into root's memory"}, reduce_direct_push},
    {{Collective::kReduce, "staged", kStage, "pieces through two stage slots, summed by root"}, reduce_staged},
    {{Collective::kBarrier, "dissemination_send", kMessages, "empty messages over doubling distances"},
     barrier_dissemination_send},
    {{Collective::kBarrier, "dissemination_signal", kStage, "signals over doubling distances"},
     barrier_dissemination_signal},
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
};

}  // namespace

std::vector<AlgorithmInfo> algorithms(Collective collective) {
  std::vector<AlgorithmInfo> found;
  for (const Entry& entry : kTable) {
    if (entry.info.collective == collective) found.push_back(entry.info);
  }
  return found;
}

std::string why_not(const AlgorithmInfo& algorithm, const CollectiveRequest& request) {
  if (algorithm.needs == kStage && !request.same_host) return "needs all ranks on one host";
  if (algorithm.needs == kSymmetricMemory && !request.direct) return "needs buffers in symmetric memory";
  for (const Entry& entry : kTable) {
    const bool meant = entry.info.collective == algorithm.collective && entry.info.name == algorithm.name;
    if (meant && entry.limits) return entry.limits(request);
  }
  return "";
}

Schedule build_schedule(std::string_view algorithm, const CollectiveRequest& request) {
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
    return entry.build(request);
  }
  throw Error(Code::kBadConfig, std::string(collective_name(request.collective)) + " has no algorithm \"" +
                                    std::string(algorithm) + "\"\n  fix: one of " + valid);
}

}  // namespace herd
