#include "herd/runtime/encoded_gradients.h"

#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>

#include "herd/base/check.h"
#include "herd/bridge/host_memory.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/program/program_names.h"

namespace herd::runtime {
namespace {

template <class T>
std::span<T> span_of(const at::Tensor& tensor) {
  return {static_cast<T*>(tensor.data_ptr()), static_cast<size_t>(tensor.numel())};
}

}  // namespace

EncodedGradients::EncodedGradients(const FlatParameters& parameters, const program::Program& step, Options options,
                                   const ServedParameters* served)
    : parameters_(parameters), options_(std::move(options)) {
  for (const program::Op& op : step.ops) {
    const bool push = op.kind == program::OpKind::kPush;
    if (!push && op.kind != program::OpKind::kAllReduce) continue;
    for (const program::Value& value : push ? op.reads : op.writes) {
      const bool is_kept = step.values.contains(in_tier(program::residual(value.index), value.tier));
      if (!is_kept || value.codec == program::Codec::kPlain) continue;
      tier_ = value.tier;
      push ? allocate_push(value.index, *served) : allocate_sum(value.index, op.axis, step);
      plain_bytes_ += 4 * parameters.group(value.index).elements();
    }
  }
}

void EncodedGradients::allocate_sum(int index, int axis, const program::Program& step) {
  const kernels::EncodedParts parts{options_.codec, parameters_.group(index).elements(), step.mesh.size(axis)};
  const auto& exact = options_.exact[index];
  int64_t num_exact = 0;
  for (const kernels::ElementRange& range : exact) num_exact += range.size();
  Group& group = groups_[index];
  group.residual = allocate(parts.residual_elements(), at::kFloat, MemoryLabel::kStates);
  group.incoming =
      allocate(parts.incoming_bytes(), at::kByte, parts.is_sparse() ? MemoryLabel::kGradients : MemoryLabel::kStates);
  group.message = allocate(parts.is_sparse() ? 0 : parts.message_bytes(), at::kByte, MemoryLabel::kGradients);
  group.exact = allocate(num_exact, at::kFloat, MemoryLabel::kGradients);
  group.sum = std::make_unique<comm::EncodedSum>(
      parts, exact, step.mesh.index(axis, step.rank),
      comm::EncodedSum::Memory{span_of<float>(group.residual), span_of<uint8_t>(group.message),
                               span_of<uint8_t>(group.incoming), span_of<float>(group.exact)});
  encoded_bytes_ += parts.message_bytes() + 4 * num_exact;
}

void EncodedGradients::allocate_push(int index, const ServedParameters& served) {
  const int64_t key = served.key_of(index);
  const int64_t message_bytes = param_server::most_message_bytes(served.keys(), key, served.num_servers());
  Group& group = groups_[index];
  group.residual = allocate(parameters_.group(index).elements(), at::kFloat, MemoryLabel::kStates);
  group.message = allocate(message_bytes, at::kByte, MemoryLabel::kGradients);
  group.push = std::make_unique<EncodedPush>(
      served.keys(), key, served.num_servers(),
      EncodedPush::Memory{span_of<float>(group.residual), span_of<std::byte>(group.message)});
  encoded_bytes_ += message_bytes;
}

at::Tensor EncodedGradients::allocate(int64_t elements, at::ScalarType type, MemoryLabel label) const {
  if (tier_ == program::Tier::kHost) return host_zeros(elements, type);
  const MemoryLabelGuard guard(label);
  return at::zeros({elements}, type);
}

at::Tensor EncodedGradients::gradient(int group, program::Tier tier) const {
  return parameters_.memory(in_tier(program::gradient(group), tier)).narrow(0, 0, parameters_.group(group).elements());
}

std::span<float> EncodedGradients::gradient_to_encode(int group) const {
  return span_of<float>(gradient(group, tier_));
}

void EncodedGradients::encode(int group, int64_t step) {
  if (is_warming_up(step)) return;
  const Group& own = groups_.at(group);
  const std::span<const float> terms = gradient_to_encode(group);
  const kernels::EncodingLoss loss = own.push ? own.push->encode(terms) : own.sum->encode(terms);
  const std::lock_guard lock(mutex_);
  squares_ += loss.squares;
  lost_squares_ += loss.lost_squares;
}

std::vector<Work> EncodedGradients::start_exchange(int group, int64_t step, Communicator& terms, Communicator& gathers,
                                                   const OpOptions& options) {
  if (!is_warming_up(step)) return groups_.at(group).sum->start_exchange(terms, gathers, {.name = options.name});
  std::vector<Work> works;
  works.push_back(terms.all_reduce_async(gradient(group, program::Tier::kDevice), options));
  return works;
}

const PushMessages* EncodedGradients::messages(int group, int64_t step) const {
  return is_warming_up(step) ? nullptr : &groups_.at(group).push->messages();
}

void EncodedGradients::decode(int group, int64_t step) {
  if (!is_warming_up(step)) groups_.at(group).sum->decode(gradient_to_encode(group));
}

std::vector<int> EncodedGradients::groups() const {
  std::vector<int> indices;
  for (const auto& [index, group] : groups_) indices.push_back(index);
  return indices;
}

const at::Tensor& EncodedGradients::residual(int group) const { return groups_.at(group).residual; }

double EncodedGradients::take_relative_error() {
  const std::lock_guard lock(mutex_);
  const double squares = std::exchange(squares_, 0), lost = std::exchange(lost_squares_, 0);
  return squares > 0 ? std::sqrt(lost / squares) : 0;
}

double EncodedGradients::ratio() const {
  return encoded_bytes_ > 0 ? static_cast<double>(plain_bytes_) / static_cast<double>(encoded_bytes_) : 1;
}

}  // namespace herd::runtime
