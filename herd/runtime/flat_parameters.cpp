#include "herd/runtime/flat_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/bridge/tensor_buffer.h"

namespace herd::runtime {
namespace {

constexpr int64_t kLineBytes = 64;

std::vector<int64_t> lay_out(const Groups& groups) {
  std::vector<int64_t> offsets = {0};
  for (const auto& group : groups) {
    const int64_t line = kLineBytes / static_cast<int64_t>(c10::elementSize(group->dtype()));
    offsets.push_back(offsets.back() + (group->elements() + line - 1) / line * line);
  }
  return offsets;
}

}  // namespace

FlatParameters::FlatParameters(Groups groups, Communicator& comm, int num_states, uint64_t seed)
    : groups_(std::move(groups)), offsets_(lay_out(groups_)) {
  HERD_CHECK(!groups_.empty(), "a model without parameters");
  const at::ScalarType dtype = groups_.front()->dtype();
  const int64_t element_bytes = static_cast<int64_t>(c10::elementSize(dtype));
  {
    const MemoryLabelGuard label(MemoryLabel::kWeights);
    weights_ = at::empty({elements()}, dtype);
  }
  if (comm.size() > 1) {
    counted_ = std::make_unique<CountedMemory>(MemoryLabel::kGradients, elements() * element_bytes);
    shared_ = comm.allocate_symmetric(elements() * element_bytes, {.name = "gradients"});
    gradients_ = at::from_blob(
        shared_->data(), {elements()}, [keep = shared_->keep_alive()](void*) {}, at::TensorOptions(dtype));
    gradients_.zero_();
  } else {
    const MemoryLabelGuard label(MemoryLabel::kGradients);
    gradients_ = at::zeros({elements()}, dtype);
  }
  const MemoryLabelGuard label(MemoryLabel::kStates);
  for (int k = 0; k < num_states; ++k) states_.push_back(at::zeros({elements()}, at::kFloat));

  for (int i = 0; i < num_groups(); ++i) {
    HERD_CHECK(groups_[i]->dtype() == dtype, groups_[i]->name() + " has another dtype than the first group");
    const at::Tensor weights = weights_.narrow(0, offsets_[i], groups_[i]->elements());
    groups_[i]->initialize(seed, weights);
    weights_.narrow(0, offsets_[i], offsets_[i + 1] - offsets_[i])
        .narrow(0, groups_[i]->elements(), offsets_[i + 1] - offsets_[i] - groups_[i]->elements())
        .zero_();
    groups_[i]->attach(weights);
    groups_[i]->attach_gradient(gradients_.narrow(0, offsets_[i], groups_[i]->elements()));
  }
}

FlatParameters::~FlatParameters() {
  for (const auto& group : groups_) {
    group->detach();
    group->detach_gradient();
  }
}

int FlatParameters::index_of(const nn::ParameterGroup& group) const {
  for (int i = 0; i < num_groups(); ++i)
    if (groups_[i].get() == &group) return i;
  throw Error(Code::kBug, "group " + group.name() + " is not one of this rank's");
}

at::Tensor FlatParameters::gradient_range(int first, int last) const {
  return gradients_.narrow(0, offsets_[first], offsets_[last + 1] - offsets_[first]);
}

at::Tensor FlatParameters::group_state(int k, int group) const {
  return states_[k].narrow(0, offsets_[group], groups_[group]->elements());
}

int64_t FlatParameters::bytes(const Groups& groups, int num_states) {
  const int64_t elements = lay_out(groups).back();
  return elements * (2 * static_cast<int64_t>(c10::elementSize(groups.front()->dtype())) + 4 * num_states);
}

}  // namespace herd::runtime
