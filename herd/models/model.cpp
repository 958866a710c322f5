#include "herd/models/model.h"

#include <algorithm>

namespace herd::models {

int64_t Model::parameters() const {
  int64_t sum = 0;
  for (const auto& group : groups) sum += group->elements();
  return sum;
}

std::vector<std::vector<int>> Model::block_groups() const {
  std::vector<std::vector<int>> result;
  for (const auto& block : blocks) {
    std::vector<int>& list = result.emplace_back();
    for (const auto& group : block->groups()) {
      list.push_back(static_cast<int>(std::find(groups.begin(), groups.end(), group) - groups.begin()));
    }
  }
  return result;
}

}  // namespace herd::models
