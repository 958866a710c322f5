#include "herd/runtime/server_share.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "herd/base/check.h"
#include "herd/bridge/host_memory.h"
#include "herd/optim/optimizer.h"
#include "herd/program/collective_message.h"

namespace herd::runtime {
namespace {

Key key_of_part(const nn::ParameterGroup& group, kernels::ElementRange part) {
  Key key{.elements = part.size()};
  auto& decay = key.decay.emplace();
  for (const nn::Parameter& parameter : group.parameters()) {
    const int64_t begin = std::max(parameter.offset(), part.begin);
    const int64_t end = std::min(parameter.offset() + parameter.spec().elements(), part.end);
    if (parameter.spec().decay && begin < end) optim::append_range(decay, begin - part.begin, end - part.begin);
  }
  return key;
}

}  // namespace

ServerShare::ServerShare(const Groups& groups, const program::Program& step, const ServedOptions& options, Rank rank)
    : groups_(groups), options_(options), keys_({}) {
  std::map<int, const program::Op*> pushes;  // by group
  for (const program::Op& op : step.ops) {
    if (op.kind == program::OpKind::kPush) pushes.emplace(op.writes.at(0).index, &op);
  }
  HERD_CHECK(!pushes.empty(), "a step without pushes");
  const program::Op* const push = pushes.begin()->second;
  std::vector<Key> keys;
  for (const auto& [group, op] : pushes) add_keys(*op, keys);
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
  for (int64_t key = 0; key < keys_.size(); ++key) {
    offsets_.push_back(elements);
    elements += served(key).size();
  }
  for (int k = 0; k < options.num_moments; ++k) moments_.push_back(host_zeros(elements, at::kFloat));
}

void ServerShare::add_keys(const program::Op& push, std::vector<Key>& keys) {
  const int index = push.writes.at(0).index;
  first_keys_[index] = static_cast<int64_t>(keys.size());
  program::Op part = push;
  for (part.part = 0; part.part < push.parts; ++part.part) {
    const program::ElementRange range = program::part_of(group(index).elements(), part);
    parts_.push_back({index, {range.begin, range.end}});
    keys.push_back(key_of_part(group(index), parts_.back().elements));
    if (!options_.codec) continue;
    HERD_CHECK(push.parts == 1, "what is encoded is pushed as a whole");
    keys.back().codec = options_.codec;
    if (const auto exact = options_.exact.find(index); exact != options_.exact.end()) keys.back().exact = exact->second;
  }
}

kernels::ElementRange ServerShare::served(int64_t key) const {
  if (!serves()) return {0, 0};
  const kernels::ElementRange piece = keys_.piece(key, server_, num_servers());
  const int64_t first = elements_of(key).begin;
  return {first + piece.begin, first + piece.end};
}

at::Tensor ServerShare::moment(int k, int64_t key) const {
  return moments_[static_cast<size_t>(k)].narrow(0, offsets_[static_cast<size_t>(key)], served(key).size());
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
    const at::Tensor memory = moment(k, index);
    return std::span<float>(memory.mutable_data_ptr<float>(), static_cast<size_t>(memory.numel()));
  };
  return std::make_unique<ParameterServer>(world, layout_, keys_, options);
}

int64_t ServerShare::updates(Communicator& comm, const ParameterServer* server) const {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  std::vector<double> extremes = {kNone, kNone, 0};  // most, least with its sign changed, and lost ranks
  if (server != nullptr) extremes[2] = static_cast<double>(server->num_lost());
  for (int64_t key = 0; server != nullptr && key < keys_.size(); ++key) {
    if (served(key).size() == 0) continue;
    const auto version = static_cast<double>(server->version(key));
    extremes = {std::max(extremes[0], version), std::max(extremes[1], -version), extremes[2]};
  }
  comm.all_reduce(extremes, {.op = ReduceOp::kMax, .name = "updates of the servers"});
  HERD_CHECK(extremes[0] + extremes[1] <= extremes[2], "servers have made as many updates as each other");
  return static_cast<int64_t>(extremes[0]);
}

}  // namespace herd::runtime
