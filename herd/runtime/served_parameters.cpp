#include "herd/runtime/served_parameters.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/bridge/host_memory.h"
#include "herd/kernels/sum_of_squares.h"
#include "herd/optim/optimizer.h"
#include "herd/program/program_names.h"

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

std::span<float> floats_of(const at::Tensor& tensor, int64_t count) {
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(count)};
}

// Servers of one world need names of their own, also where a program trains twice.
std::string agree_on_name(Communicator& comm) {
  static std::atomic<int64_t> count{0};
  std::vector<int64_t> number = {count++};
  comm.broadcast(number, 0, {.name = "name of the servers"});
  return "parameter server " + std::to_string(number[0]);
}

}  // namespace

ServedParameters::ServedParameters(const FlatParameters& parameters, const program::Program& step,
                                   const Options& options)
    : parameters_(parameters), options_(options), keys_({}) {
  std::vector<Key> keys;
  for (const auto& [value, info] : step.values) {
    if (value.kind != program::ValueKind::kPushed) continue;
    keys_of_groups_[value.index] = static_cast<int64_t>(keys.size());
    groups_of_keys_.push_back(value.index);
    keys.push_back(key_of_group(parameters.group(value.index)));
    keys.back().codec = options.codec;
    if (const auto exact = options.exact.find(value.index); exact != options.exact.end())
      keys.back().exact = exact->second;
  }
  const auto push = std::find_if(step.ops.begin(), step.ops.end(),
                                 [](const program::Op& op) { return op.kind == program::OpKind::kPush; });
  HERD_CHECK(push != step.ops.end(), "a step without pushes");
  calls_.resize(keys.size());
  keys_ = KeyTable(std::move(keys));
  for (const int rank : step.mesh.ranks(push->axis, step.rank)) layout_.workers.push_back(rank);
  HERD_CHECK(options.num_servers >= 1 && options.num_servers <= static_cast<int>(layout_.workers.size()),
             "as many servers as ranks, at most");
  layout_.servers.assign(layout_.workers.begin(), layout_.workers.begin() + options.num_servers);
  rank_index_ = step.mesh.index(push->axis, step.rank);
  int64_t elements = 0;
  for (const int group : groups_of_keys_) {
    offsets_.push_back(elements);
    elements += served(group).size();
  }
  for (int k = 0; k < options.num_moments; ++k) moments_.push_back(host_zeros(elements, at::kFloat));
}

ServedParameters::~ServedParameters() = default;

void ServedParameters::start(Communicator& comm, int64_t updates_before) {
  layout_.name = agree_on_name(comm);
  ServerOptions options;
  options.optimizer = options_.optimizer;
  options.average = false;
  options.staleness = options_.staleness;
  options.each_push = runs_ahead();
  options.updates_before = updates_before_ = updates_before;
  options.initial = [this](int64_t index, int64_t first, std::span<float> weights) {
    const auto all = floats_of(parameters_.memory(program::weight(groups_of_keys_[static_cast<size_t>(index)])),
                               keys_.at(index).elements);
    std::copy_n(all.begin() + first, weights.size(), weights.begin());
  };
  options.moments = [this](int64_t index, int k) {
    const int group = groups_of_keys_[static_cast<size_t>(index)];
    return floats_of(moment(k, group), served(group).size());
  };
  if (serves()) server_ = std::make_unique<ParameterServer>(comm, layout_, keys_, options);
  client_ = std::make_unique<ServerClient>(comm, layout_, keys_, server_.get());
  client_->set_deadline(options_.deadline);
}

void ServedParameters::check_gradient(int group, int64_t step) const {
  const int64_t count = keys_.at(key_of(group)).elements;
  const auto gradient = floats_of(parameters_.memory(program::gradient(group)), count);
  if (options_.check_finite && !std::isfinite(kernels::sum_of_squares(gradient.data(), count))) {
    throw Error(Code::kBadConfig, "step " + std::to_string(step) + ": the gradient of " +
                                      parameters_.group(group).name() + " is not finite on rank " +
                                      std::to_string(layout_.workers[static_cast<size_t>(rank_index_)]) +
                                      "\n  fix: lower optimizer.lr, lengthen warmup_steps, or look at the data of this "
                                      "step");
  }
}

PushOptions ServedParameters::push_options(int64_t step) const {
  return {.rate = options_.rate_factor * options_.rate.of_step(step)};
}

void ServedParameters::push(int group, int64_t step) {
  check_gradient(group, step);
  const int64_t key = key_of(group);
  const auto gradient = floats_of(parameters_.memory(program::gradient(group)), keys_.at(key).elements);
  pull_after(group, client_->start_push(key, gradient, push_options(step)));
}

void ServedParameters::push_encoded(int group, int64_t step, const PushMessages& messages) {
  pull_after(group, client_->start_push_encoded(key_of(group), messages, push_options(step)));
}

void ServedParameters::push_bf16(int group, int64_t step) {
  const at::Tensor encoded = parameters_.memory(in_codec(program::gradient(group), program::Codec::kBf16));
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(encoded.const_data_ptr()), encoded.nbytes());
  push_encoded(group, step, param_server::cut_message(keys_, key_of(group), num_servers(), bytes));
}

void ServedParameters::pull_after(int group, ServerCall push) {
  const int64_t key = key_of(group);
  Calls& calls = calls_[static_cast<size_t>(key)];
  calls.push = std::move(push);
  calls.pull = client_->start_pull(key, floats_of(parameters_.memory(program::weight(group)), keys_.at(key).elements));
  calls.push.wait_sent();
}

void ServedParameters::pull(int group) {
  const int64_t key = key_of(group);
  auto [push, pull] = std::exchange(calls_[static_cast<size_t>(key)], {});
  if (push.valid()) push.wait();
  if (!pull.valid())
    pull = client_->start_pull(key, floats_of(parameters_.memory(program::weight(group)), keys_.at(key).elements));
  const int64_t staleness = pull.wait().staleness;
  {
    const std::lock_guard lock(mutex_);
    staleness_ = std::max(staleness_, staleness);
  }
  parameters_.group(group).mark_weights_written();
}

void ServedParameters::pull_all() {
  for (const int group : groups_of_keys_) pull(group);
}

int64_t ServedParameters::num_lost() const {
  return server_ != nullptr ? server_->num_lost() : std::numeric_limits<int64_t>::max();
}

JobProgress ServedParameters::report(WorkerProgress progress) {
  {
    const std::lock_guard lock(mutex_);
    progress.staleness = std::exchange(staleness_, 0);
  }
  return client_->report(progress);
}

int64_t ServedParameters::updates(Communicator& comm) const {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  std::vector<double> extremes = {kNone, kNone, 0};  // most, least with its sign changed, and lost ranks
  if (server_ != nullptr) extremes[2] = static_cast<double>(server_->num_lost());
  for (size_t key = 0; server_ != nullptr && key < groups_of_keys_.size(); ++key) {
    if (served(groups_of_keys_[key]).size() == 0) continue;
    const auto version = static_cast<double>(server_->version(static_cast<int64_t>(key)));
    extremes = {std::max(extremes[0], version), std::max(extremes[1], -version), extremes[2]};
  }
  comm.all_reduce(extremes, {.op = ReduceOp::kMax, .name = "updates of the servers"});
  HERD_CHECK(extremes[0] + extremes[1] <= extremes[2], "servers have made as many updates as each other");
  return updates_before_ + static_cast<int64_t>(extremes[0]);
}

void ServedParameters::abort(const std::string& reason) noexcept {
  try {
    if (client_) client_->abort(reason);
    if (server_) server_->abort(reason);
  } catch (const std::exception&) {  // what ended the training says more
  }
}

std::vector<int> ServedParameters::groups() const { return groups_of_keys_; }

kernels::ElementRange ServedParameters::served(int group) const {
  if (!serves()) return {0, 0};
  return keys_.piece(key_of(group), rank_index_, static_cast<int>(layout_.servers.size()));
}

at::Tensor ServedParameters::moment(int k, int group) const {
  return moments_[static_cast<size_t>(k)].narrow(0, offsets_[static_cast<size_t>(key_of(group))], served(group).size());
}

}  // namespace herd::runtime
