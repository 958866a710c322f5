#include "herd/spec/model_table.h"

#include <algorithm>

namespace herd::spec {

int64_t ModelTable::parameters() const {
  int64_t sum = 0;
  for (const auto& group : groups) sum += group.elements();
  return sum;
}

int64_t ModelTable::frozen_parameters() const {
  int64_t sum = 0;
  for (const auto& group : groups) sum += group.frozen ? group.elements() : 0;
  return sum;
}

int ModelTable::first_trained() const {
  const auto is_trained = [&](const BlockShape& block) {
    return std::any_of(block.groups.begin(), block.groups.end(),
                       [&](int group) { return !groups[static_cast<size_t>(group)].frozen; });
  };
  return static_cast<int>(std::find_if(blocks.begin(), blocks.end(), is_trained) - blocks.begin());
}

int64_t ModelTable::group_elements(int group) const { return groups[static_cast<size_t>(group)].elements_of_rank(tp); }

std::vector<int> ModelTable::inputs_of(int block) const {
  const auto& inputs = blocks[static_cast<size_t>(block)].inputs;
  return inputs.empty() ? std::vector<int>{block} : inputs;
}

bool ModelTable::is_split() const {
  return std::ranges::any_of(blocks, [](const BlockShape& block) { return block.split != Split::kNone; });
}

double ModelTable::flops() const {
  double sum = 0;
  for (const BlockShape& block : blocks) {
    for (const PassCost& cost : {block.forward, block.backward}) sum += cost.matmul_flops + cost.attention_flops;
  }
  return sum;
}

}  // namespace herd::spec
