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
      tier_(std::ranges::find(step.ops, program::OpKind::kPush, &program::Op::kind)->reads.at(0).tier),
      rank_(step.rank),
      calls_(static_cast<size_t>(share_.keys().size())) {}

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

std::span<float> ServedParameters::memory_of(int64_t key, const program::Value& value) const {
  const kernels::ElementRange range = share_.elements_of(key);
  return floats_of(parameters_.memory(in_tier(value, tier_)), range.end).subspan(static_cast<size_t>(range.begin));
}

std::span<const float> ServedParameters::weights_of(int64_t key, int64_t first, int64_t count) const {
  const auto all = memory_of(key, program::weight(share_.group_of(key)));
  return all.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

void ServedParameters::check_gradient(int group, int64_t step) const { check_finite(key_of(group), step); }

void ServedParameters::check_finite(int64_t key, int64_t step) const {
  const int group = share_.group_of(key);
  const auto gradient = memory_of(key, program::gradient(group));
  const auto count = static_cast<int64_t>(gradient.size());
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

void ServedParameters::push(int group, int part, int64_t step) {
  const int64_t key = share_.key_of(group, part);
  check_finite(key, step);
  pull_after(key, client_->start_push(key, memory_of(key, program::gradient(group)), push_options(step)));
}

void ServedParameters::push_encoded(int group, int64_t step, const PushMessages& messages) {
  pull_after(key_of(group), client_->start_push_encoded(key_of(group), messages, push_options(step)));
}

void ServedParameters::push_bf16(int group, int64_t step) {
  const at::Tensor encoded =
      parameters_.memory(in_tier(in_codec(program::gradient(group), program::Codec::kBf16), tier_));
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(encoded.const_data_ptr()), encoded.nbytes());
  push_encoded(group, step, param_server::cut_message(keys(), key_of(group), num_servers(), bytes));
}

void ServedParameters::pull_after(int64_t key, ServerCall push) {
  Calls& calls = calls_[static_cast<size_t>(key)];
  calls.push = std::move(push);
  calls.pull = client_->start_pull(key, memory_of(key, program::weight(share_.group_of(key))));
  calls.push.wait_sent();
}

void ServedParameters::pull(int group, int part) { pull_key(share_.key_of(group, part)); }

void ServedParameters::pull_key(int64_t key) {
  const int group = share_.group_of(key);
  auto [push, pull] = std::exchange(calls_[static_cast<size_t>(key)], {});
  if (push.valid()) push.wait();
  if (!pull.valid()) pull = client_->start_pull(key, memory_of(key, program::weight(group)));
  const int64_t staleness = pull.wait().staleness;
  {
    const std::lock_guard lock(mutex_);
    staleness_ = std::max(staleness_, staleness);
  }
  parameters_.group(group).mark_weights_written();
}

void ServedParameters::pull_all() {
  for (int64_t key = 0; key < keys().size(); ++key) pull_key(key);
  for (int group = 0; tier_ == program::Tier::kHost && group < parameters_.num_groups(); ++group) {
    if (!share_.has_group(group)) continue;
    parameters_.memory(program::weight(group)).copy_(parameters_.memory(in_tier(program::weight(group), tier_)));
  }
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
