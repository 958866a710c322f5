#include "herd/runtime/arena.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "herd/base/check.h"
#include "herd/bridge/host_memory.h"
#include "herd/program/program_names.h"

namespace herd::runtime {

using program::Tier;
using program::Value;
using program::ValueInfo;

namespace {

bool takes_turns(Tier tier, const ValueInfo& info) {
  switch (tier) {
    case Tier::kDevice:
      return info.pooled;
    case Tier::kHost:
      return !info.persistent;
    case Tier::kNvme:
      return info.slot >= 0;
  }
  return false;
}

}  // namespace

Arena::Arena(at::ScalarType type, int64_t alignment)
    : type_(type), element_bytes_(static_cast<int64_t>(c10::elementSize(type))), alignment_(alignment) {}

int64_t Arena::rounded(int64_t elements) const {
  if (alignment_ == 0) return elements;
  return (elements * element_bytes_ + alignment_ - 1) / alignment_ * alignment_ / element_bytes_;
}

void Arena::lay_out(const program::Program& step, const std::function<bool(const Value&)>& belongs,
                    const std::function<int(int)>& shard_of) {
  std::map<int, int64_t> slots;  // slot -> elements
  for (const auto& [value, info] : step.values) {
    if (!belongs(value) || !takes_turns(value.tier, info)) continue;
    int64_t& elements = slots[info.slot];
    elements = std::max(elements, info.bytes / element_bytes_);
  }
  std::map<int, int64_t> begins;
  for (const auto& [slot, elements] : slots) {
    begins[slot] = slot_elements_;
    slot_elements_ += rounded(elements);
  }
  for (const bool of_wholes : {true, false}) {
    for (const auto& [value, info] : step.values) {
      if (!belongs(value) || value.placement.is_whole() != of_wholes) continue;
      const int64_t elements = info.bytes / element_bytes_;
      if (takes_turns(value.tier, info)) {
        places_[value] = {true, {begins.at(info.slot), elements}};
        continue;
      }
      const Value whole = program::placed(value, program::kWhole);
      const auto around = of_wholes ? places_.end() : places_.find(whole);
      const bool is_inside = around != places_.end() && !around->second.in_slot && info.slot >= 0 &&
                             step.values.at(whole).slot == info.slot;
      if (is_inside)
        places_[value] = {false, {around->second.place.begin + shard_of(value.index) * elements, elements}};
      else
        add(value, elements);
    }
  }
}

void Arena::add(const Value& value, int64_t elements) {
  places_[value] = {false, {own_elements_, elements}};
  own_elements_ += rounded(elements);
}

void Arena::allocate(const Allocation& allocation, at::Device device, Communicator& comm) {
  const at::TensorOptions options = at::TensorOptions(type_).device(device);
  if (!allocation.symmetric && !allocation.counts_slots_apart) {
    const MemoryLabelGuard label(allocation.label);
    memory_ = allocation.zeros ? at::zeros({elements()}, options) : at::empty({elements()}, options);
    if (!device.is_cpu())  // torch has counted it, without the label
      counted_ = std::make_unique<CountedMemory>(allocation.label, static_cast<int64_t>(memory_.nbytes()));
    return;
  }
  counted_ = std::make_unique<CountedMemory>(allocation.label, own_elements_ * element_bytes_);
  counted_slots_ = std::make_unique<CountedMemory>(MemoryLabel::kWorkspace, slot_elements_ * element_bytes_);
  if (!allocation.symmetric) {
    memory_ = host_zeros(elements(), type_);
    return;
  }
  shared_ = comm.allocate_symmetric(elements() * element_bytes_, {.name = memory_label_name(allocation.label)});
  memory_ = at::from_blob(
      shared_->data(), {elements()}, [keep = shared_->keep_alive()](void*) {}, options);
  memory_.zero_();
}

void Arena::allocate_on_host(at::Device device) { memory_ = host_zeros(elements(), type_, device); }

std::vector<Value> Arena::values() const {
  std::vector<Value> out;
  for (const auto& [value, own] : places_) out.push_back(value);
  return out;
}

Arena::Place Arena::place(const Value& value) const {
  const auto found = places_.find(value);
  HERD_CHECK(found != places_.end(), "the value has no place in its arena");
  const auto& [in_slot, place] = found->second;
  return in_slot ? place : Place{slot_elements_ + place.begin, place.elements};
}

at::Tensor Arena::memory(const Value& value) const {
  if (!contains(value)) return {};
  const Place at = place(value);
  return memory_.narrow(0, at.begin, at.elements);
}

at::Tensor Arena::range(const Place& first, const Place& last) const {
  return memory_.narrow(0, first.begin, last.begin + last.elements - first.begin);
}

int64_t Arena::bytes() const { return memory_.defined() ? static_cast<int64_t>(memory_.nbytes()) : 0; }

}  // namespace herd::runtime
