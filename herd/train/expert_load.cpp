#include "herd/train/expert_load.h"

#include <algorithm>
#include <numeric>

#include "herd/base/check.h"

namespace herd::train {

std::vector<int64_t> take_expert_load(const Routers& routers) {
  std::vector<int64_t> all;
  for (const auto& router : routers) {
    const std::vector<int64_t> load = router->take_load();
    all.insert(all.end(), load.begin(), load.end());
  }
  return all;
}

ExpertLoad balance_experts(const Routers& routers, const std::vector<int64_t>& counts) {
  ExpertLoad load;
  if (routers.empty() || counts.empty()) return load;
  HERD_CHECK_EQ(counts.size() % routers.size(), size_t{0});
  const auto each = static_cast<int64_t>(counts.size() / routers.size());
  for (size_t layer = 0; layer < routers.size(); ++layer) {
    const auto begin = counts.begin() + static_cast<int64_t>(layer) * each;
    load.by_layer.emplace_back(begin, begin + each - nn::kCountsBesideLoad);
    load.dropped += begin[each - 2];
    load.close_by_layer.push_back(begin[each - 1]);
    routers[layer]->balance(load.by_layer.back());
  }
  return load;
}

double ExpertLoad::dropped_share() const {
  int64_t chosen = 0;
  for (const std::vector<int64_t>& layer : by_layer) chosen += std::accumulate(layer.begin(), layer.end(), int64_t{0});
  return chosen == 0 ? 0 : static_cast<double>(dropped) / static_cast<double>(chosen);
}

double worst_imbalance(const std::vector<std::vector<int64_t>>& load_by_layer) {
  double worst = 1;
  for (const std::vector<int64_t>& load : load_by_layer) worst = std::max(worst, nn::imbalance(load));
  return worst;
}

}  // namespace herd::train
