#include "herd/strategies/pipeline_orders.h"

#include <algorithm>
#include <utility>

#include "herd/base/error.h"

namespace herd::strategies {
namespace {

// `ahead` forwards before the first backward, then one of each in turn.
std::vector<Turn> forwards_ahead(int ahead, int micro_batches) {
  std::vector<Turn> turns;
  for (int m = 0; m < ahead; ++m) turns.push_back({Pass::kForward, m});
  for (int m = 0; m < micro_batches; ++m) {
    if (ahead + m < micro_batches) turns.push_back({Pass::kForward, ahead + m});
    turns.push_back({Pass::kBackward, m});
  }
  return turns;
}

// The gradients of weights `behind` backwards after those of inputs.
std::vector<Turn> weights_behind(const std::vector<Turn>& turns, int behind, int micro_batches) {
  std::vector<Turn> out;
  int weights = 0;
  for (const Turn& turn : turns) {
    out.push_back(turn);
    if (turn.pass == Pass::kBackward && turn.micro_batch >= behind) out.push_back({Pass::kWeights, weights++});
  }
  while (weights < micro_batches) out.push_back({Pass::kWeights, weights++});
  return out;
}

std::vector<Turn> gpipe(int, int, int micro_batches) { return forwards_ahead(micro_batches, micro_batches); }

std::vector<Turn> one_forward_one_backward(int stages, int stage, int micro_batches) {
  return forwards_ahead(std::min(stages - 1 - stage, micro_batches), micro_batches);
}

std::vector<Turn> zero_bubble_h1(int stages, int stage, int micro_batches) {
  return weights_behind(one_forward_one_backward(stages, stage, micro_batches), stage, micro_batches);
}

using Order = std::vector<Turn> (*)(int stages, int stage, int micro_batches);
constexpr std::pair<std::string_view, Order> kOrders[] = {
    {"gpipe", gpipe}, {"1f1b", one_forward_one_backward}, {"zero_bubble_h1", zero_bubble_h1}};

}  // namespace

const std::vector<std::string>& pipeline_orders() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const auto& [name, order] : kOrders) out.emplace_back(name);
    return out;
  }();
  return names;
}

bool splits_backward(std::string_view order) { return order == "zero_bubble_h1"; }

std::vector<Turn> pipeline_order(std::string_view order, int stages, int stage, int micro_batches) {
  for (const auto& [name, turns] : kOrders) {
    if (name == order) return turns(stages, stage, micro_batches);
  }
  throw Error(Code::kBadConfig, "strategy.pipeline = \"" + std::string(order) +
                                    "\" has no order of micro-batches here\n  fix: strategy.pipeline = \"1f1b\"");
}

}  // namespace herd::strategies
