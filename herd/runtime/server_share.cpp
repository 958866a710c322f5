#include "herd/runtime/server_share.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "herd/base/check.h"
#include "herd/bridge/host_memory.h"
#include "herd/optim/optimizer.h"

namespace herd::runtime {
namespace {

Key key_of_group(const nn::ParameterGroup& group) {
  Key key{.elements = group.elements()};
  auto& decay = key.decay.emplace();
  for (const nn::Parameter& parameter : group.parameters()) {
    if (parameter.spec().decay)
      optim::append_range(decay, parameter.offset(), parameter.offset() + parameter.spec().elements());
  }
  return key;
}

}  // namespace

ServerShare::ServerShare(const Groups& groups, const program::Program& step, const ServedOptions& options, Rank rank)
    : groups_(groups), options_(options), keys_({}) {
  std::vector<Key> keys;
  for (const auto& [value, info] : step.values) {
    if (value.kind != program::ValueKind::kPushed) continue;
    keys_of_groups_[value.index] = static_cast<int64_t>(keys.size());
    groups_of_keys_.push_back(value.index);
    keys.push_back(key_of_group(group(value.index)));
    keys.back().codec = options.codec;
    if (const auto exact = options.exact.find(value.index); exact != options.exact.end())
      keys.back().exact = exact->second;
  }
  const auto push = std::find_if(step.ops.begin(), step.ops.end(),
                                 [](const program::Op& op) { return op.kind == program::OpKind::kPush; });
  HERD_CHECK(push != step.ops.end(), "a step without pushes");
  keys_ = KeyTable(std::move(keys));
  for (const int worker : step.mesh.ranks(push->axis, step.rank)) layout_.workers.push_back(worker);
  dedicated_ = push->servers > 0;
  HERD_CHECK(options.num_servers >= 1 && (dedicated_ ? options.num_servers == push->servers
                                                     : options.num_servers <= static_cast<int>(layout_.workers.size())),
             "as many servers as the step names, or as ranks, at most");
  for (int i = 0; i < options.num_servers; ++i)
    layout_.servers.push_back(dedicated_ ? step.mesh.world_size + i : layout_.workers[static_cast<size_t>(i)]);
  const auto place = std::find(layout_.servers.begin(), layout_.servers.end(), rank);
  if (place != layout_.servers.end()) server_ = static_cast<int>(place - layout_.servers.begin());
  int64_t elements = 0;
  for (const int group : groups_of_keys_) {
    offsets_.push_back(elements);
    elements += served(group).size();
  }
  for (int k = 0; k < options.num_moments; ++k) moments_.push_back(host_zeros(elements, at::kFloat));
}

kernels::ElementRange ServerShare::served(int group) const {
  if (!serves()) return {0, 0};
  return keys_.piece(key_of(group), server_, num_servers());
}

at::Tensor ServerShare::moment(int k, int group) const {
  return moments_[static_cast<size_t>(k)].narrow(0, offsets_[static_cast<size_t>(key_of(group))], served(group).size());
}

std::unique_ptr<ParameterServer> ServerShare::start_server(const Communicator& world, int64_t updates_before,
                                                           FirstWeights weights) const {
  ServerOptions options;
  options.optimizer = options_.optimizer;
  options.average = false;
  options.staleness = options_.staleness;
  options.each_push = runs_ahead();
  options.updates_before = updates_before;
  options.initial = std::move(weights);
  options.moments = [this](int64_t index, int k) {
    const at::Tensor memory = moment(k, groups_of_keys_[static_cast<size_t>(index)]);
    return std::span<float>(memory.mutable_data_ptr<float>(), static_cast<size_t>(memory.numel()));
  };
  return std::make_unique<ParameterServer>(world, layout_, keys_, options);
}

int64_t ServerShare::updates(Communicator& comm, const ParameterServer* server) const {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  std::vector<double> extremes = {kNone, kNone, 0};  // most, least with its sign changed, and lost ranks
  if (server != nullptr) extremes[2] = static_cast<double>(server->num_lost());
  for (size_t key = 0; server != nullptr && key < groups_of_keys_.size(); ++key) {
    if (served(groups_of_keys_[key]).size() == 0) continue;
    const auto version = static_cast<double>(server->version(static_cast<int64_t>(key)));
    extremes = {std::max(extremes[0], version), std::max(extremes[1], -version), extremes[2]};
  }
  comm.all_reduce(extremes, {.op = ReduceOp::kMax, .name = "updates of the servers"});
  HERD_CHECK(extremes[0] + extremes[1] <= extremes[2], "servers have made as many updates as each other");
  return static_cast<int64_t>(extremes[0]);
}

}  // namespace herd::runtime
