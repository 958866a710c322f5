#include "herd/runtime/whole_weights.h"

#include "herd/bridge/tensor_buffer.h"
#include "herd/program/message.h"
#include "herd/program/names.h"

namespace herd::runtime {

WholeWeights::WholeWeights(FlatParameters& parameters, const AxisGroups& groups, const program::Program& step)
    : parameters_(parameters) {
  if (!parameters.keeps_whole_weights()) gather_ = &groups.of(program::Lane::kGather, program::shard_axis(step));
}

void WholeWeights::take(const nn::Block& block) {
  for (const auto& group : block.groups()) {
    const int index = parameters_.index_of(*group);
    if (gather_ != nullptr) {
      gather_->all_gather(parameters_.memory(program::weight(index, program::Form::kShard)),
                          parameters_.memory(program::weight(index)), {.name = "weights"});
    }
    parameters_.attach(index);
  }
}

void WholeWeights::give_back(const nn::Block& block) {
  for (const auto& group : block.groups()) parameters_.detach(parameters_.index_of(*group));
}

}  // namespace herd::runtime
