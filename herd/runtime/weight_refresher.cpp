#include "herd/runtime/weight_refresher.h"

#include "herd/bridge/split_float.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"

namespace herd::runtime {

WeightRefresher::WeightRefresher(FlatParameters& parameters, const AxisGroups& groups, const program::Program& step)
    : parameters_(parameters), groups_(groups), axes_(program::weight_shard_axes(step)) {
  for (const program::Op& op : step.ops) {
    if (!program::is_rooted(op)) continue;
    for (const program::Value& value : program::moved_values(op)) owners_[value.index] = op.peer;
  }
}

void WeightRefresher::refresh() {
  for (int group = 0; group < parameters_.num_groups(); ++group) {
    if (!parameters_.holds(group)) continue;
    const bool frozen = parameters_.group(group).frozen();
    if (const at::Tensor master = parameters_.own_master(group); master.defined()) {
      const at::Tensor weights = parameters_.own_weights(group);
      if (weights.scalar_type() == at::kBFloat16)
        round_to_upper_half(master, weights);
      else
        weights.copy_(master);
    }
    parameters_.refresh_host(group);
    if (parameters_.gathers_encoded(group)) parameters_.encode_shard(group);
    const auto axis = axes_.find(group);
    const program::Tier tier = parameters_.stays_on_host(group) ? program::Tier::kHost : program::Tier::kDevice;
    const bool keeps_whole = parameters_.keeps_whole(group) || parameters_.whole_on_host(group).defined();
    if (axis == axes_.end() || !keeps_whole || frozen) continue;
    Communicator& comm = groups_.of(program::Lane::kGather, axis->second);
    const at::Tensor whole = parameters_.memory(in_tier(program::weight(group), tier));
    if (const auto owner = owners_.find(group); owner != owners_.end()) {
      comm.broadcast(whole, owner->second, {.name = "weights"});
      continue;
    }
    const at::Tensor shard =
        parameters_.memory(in_tier(program::weight(group, program::kWhole.shard_on(axis->second)), tier));
    comm.all_gather(shard, whole, {.name = "weights"});
  }
  parameters_.forget_mapped();
}

}  // namespace herd::runtime
