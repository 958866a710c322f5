#include "herd/runtime/served_parameters.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "herd/base/error.h"
#include "herd/kernels/sum_of_squares.h"
#include "herd/program/program_names.h"

namespace herd::runtime {
namespace {

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
    : parameters_(parameters),
      options_(options),
      share_(parameters.groups(), step, options, step.rank),
      rank_(step.rank),
      calls_(share_.groups().size()) {}

ServedParameters::~ServedParameters() = default;

void ServedParameters::start(Communicator& comm, const Communicator& world, int64_t updates_before,
                             const std::function<void(const std::string& name)>& meet) {
  share_.set_name(agree_on_name(comm));
  updates_before_ = updates_before;
  if (meet) meet(share_.layout().name);
  const auto weights = [this](int64_t key, int64_t first, std::span<float> out) {
    std::ranges::copy(weights_of(key, first, static_cast<int64_t>(out.size())), out.begin());
  };
  if (serves()) server_ = share_.start_server(world, updates_before, weights);
  client_ = std::make_unique<ServerClient>(world, share_.layout(), keys(), server_.get());
  client_->set_deadline(options_.deadline);
}

std::span<const float> ServedParameters::weights_of(int64_t key, int64_t first, int64_t count) const {
  const int group = share_.groups()[static_cast<size_t>(key)];
  const auto all = floats_of(parameters_.memory(program::weight(group)), keys().at(key).elements);
  return all.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

void ServedParameters::check_gradient(int group, int64_t step) const {
  const int64_t count = keys().at(key_of(group)).elements;
  const auto gradient = floats_of(parameters_.memory(program::gradient(group)), count);
  if (options_.check_finite && !std::isfinite(kernels::sum_of_squares(gradient.data(), count))) {
    throw Error(Code::kBadConfig, "step " + std::to_string(step) + ": the gradient of " +
                                      parameters_.group(group).name() + " is not finite on rank " +
                                      std::to_string(rank_) +
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
  const auto gradient = floats_of(parameters_.memory(program::gradient(group)), keys().at(key).elements);
  pull_after(group, client_->start_push(key, gradient, push_options(step)));
}

void ServedParameters::push_encoded(int group, int64_t step, const PushMessages& messages) {
  pull_after(group, client_->start_push_encoded(key_of(group), messages, push_options(step)));
}

void ServedParameters::push_bf16(int group, int64_t step) {
  const at::Tensor encoded = parameters_.memory(in_codec(program::gradient(group), program::Codec::kBf16));
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(encoded.const_data_ptr()), encoded.nbytes());
  push_encoded(group, step, param_server::cut_message(keys(), key_of(group), num_servers(), bytes));
}

void ServedParameters::pull_after(int group, ServerCall push) {
  const int64_t key = key_of(group);
  Calls& calls = calls_[static_cast<size_t>(key)];
  calls.push = std::move(push);
  calls.pull = client_->start_pull(key, floats_of(parameters_.memory(program::weight(group)), keys().at(key).elements));
  calls.push.wait_sent();
}

void ServedParameters::pull(int group) {
  const int64_t key = key_of(group);
  auto [push, pull] = std::exchange(calls_[static_cast<size_t>(key)], {});
  if (push.valid()) push.wait();
  if (!pull.valid())
    pull = client_->start_pull(key, floats_of(parameters_.memory(program::weight(group)), keys().at(key).elements));
  const int64_t staleness = pull.wait().staleness;
  {
    const std::lock_guard lock(mutex_);
    staleness_ = std::max(staleness_, staleness);
  }
  parameters_.group(group).mark_weights_written();
}

void ServedParameters::pull_all() {
  for (const int group : share_.groups()) pull(group);
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
  return updates_before_ + share_.updates(comm, server_.get());
}

void ServedParameters::abort(const std::string& reason) noexcept {
  try {
    if (client_) client_->abort(reason);
    if (server_) server_->abort(reason);
  } catch (const std::exception&) {  // what ended the training says more
  }
}

}  // namespace herd::runtime
