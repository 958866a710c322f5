#include "herd/spec/model_states.h"

#include <string>

#include "herd/base/error.h"

namespace herd::spec {
namespace {

void check(int ranks, int stage) {
  if (stage < 0 || stage > 3 || ranks < 1) {
    throw Error(Code::kBadConfig, "ZeRO has stages 0 to 3 over at least one rank, got stage " + std::to_string(stage) +
                                      " over " + std::to_string(ranks) + "\n  fix: strategy.zero = 0, 1, 2 or 3");
  }
}

}  // namespace

StateBytes state_bytes(const RunFile& run) {
  const double moments = run.optimizer.kind == "adamw" ? 2 : run.optimizer.momentum > 0 ? 1 : 0;
  const double states = 4 * moments - (moments > 0 && run.optimizer.momentum_precision == "bf16" ? 2 : 0);
  if (run.strategy.precision == "fp32") return {4, 4, states};
  const bool split = run.strategy.precision == "bf16" && run.strategy.offload == "none";  // else a whole master copy
  return {2, run.strategy.gradient_precision == "fp32" ? 4.0 : 2.0, (split ? 2 : 4) + states};
}

double zero_state_bytes(double parameters, int ranks, int stage, StateBytes b) {
  check(ranks, stage);
  const double whole = (stage < 3 ? b.weight : 0) + (stage < 2 ? b.gradient : 0) + (stage < 1 ? b.states : 0);
  return parameters * (whole + (b.total() - whole) / ranks);
}

int64_t shard_bytes(int64_t bytes, int ranks) {
  constexpr int64_t kLineBytes = 64;
  check(ranks, 0);
  return (bytes + ranks * kLineBytes - 1) / (ranks * kLineBytes) * kLineBytes;
}

int64_t nvme_bytes(int64_t bytes) {
  constexpr int64_t kBlockBytes = 4096, kRoomForParts = 512;
  return (bytes + kRoomForParts + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

double zero_elements_sent(double parameters, int ranks, int stage) {
  check(ranks, stage);
  return (stage == 3 ? 3 : 2) * parameters * (ranks - 1) / ranks;
}

double hybrid_elements_sent(double parameters, int shards, int replicas, int stage) {
  check(shards, stage);
  check(replicas, stage);
  return zero_elements_sent(parameters, shards, stage) + zero_elements_sent(parameters / shards, replicas, 0);
}

double zero3_elements_across_hosts(double parameters) { return 3 * parameters; }
double zero_plus_plus_elements_across_hosts(double parameters) { return (0.5 + 0 + 0.25) * parameters; }

}  // namespace herd::spec
