#include "herd/spec/model_states.h"

#include <string>

#include "herd/base/error.h"

namespace herd::spec {
namespace {

void check(int ranks, int stage) {
  if (stage < 0 || stage > 3 || ranks < 1) {
    throw Error(Code::kBadConfig, "ZeRO has stages 0 to 3 over at least one rank, got stage " + std::to_string(stage) +
                                      " over " + std::to_string(ranks));
  }
}

}  // namespace

double zero_state_bytes(double parameters, int ranks, int stage, StateBytes b) {
  check(ranks, stage);
  const double whole = (stage < 3 ? b.weight : 0) + (stage < 2 ? b.gradient : 0) + (stage < 1 ? b.states : 0);
  return parameters * (whole + (b.total() - whole) / ranks);
}

double zero_elements_sent(double parameters, int ranks, int stage) {
  check(ranks, stage);
  return (stage == 3 ? 3 : 2) * parameters * (ranks - 1) / ranks;
}

}  // namespace herd::spec
