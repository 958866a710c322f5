// Finds where weights that lie elsewhere must be brought to the device, for techniques that gather or fetch them.
// Threads: pure.
#pragma once

#include <set>
#include <vector>

#include "herd/program/collective_message.h"
#include "herd/program/program.h"

namespace herd::strategies {

inline bool is_whole_weight(const program::Value& value) {
  return program::is_plain_whole(value, program::ValueKind::kWeight) && value.tier == program::Tier::kDevice;
}

// Calls `bring` before each op for every whole weight that the op reads, unless the pass before or another part of the
// same layer has brought it. Calls `next` with each op. `layers` has the layer of each block; empty = one for each.
template <class Ops, class Bring, class Next>
void each_pass(Ops& ops, const std::vector<int>& layers, const Bring& bring, const Next& next) {
  std::set<int> brought;  // groups that have been brought
  int layer = -1;
  for (auto& op : ops) {
    std::set<int> used;
    for (const program::Value& value : op.reads) {
      if (is_whole_weight(value) && used.insert(value.index).second && !brought.contains(value.index)) bring(value);
    }
    if (op.block >= 0) {
      const int layer_of_op = layers.empty() ? op.block : layers[static_cast<size_t>(op.block)];
      if (layer_of_op == layer) used.merge(brought);
      brought = std::move(used);
      layer = layer_of_op;
    }
    next(op);
  }
}

}  // namespace herd::strategies
