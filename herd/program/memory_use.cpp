#include "herd/program/memory_use.h"

#include <algorithm>
#include <numeric>

namespace herd::program {
namespace {

MemoryUse use_of(ValueKind kind) {
  switch (kind) {
    case ValueKind::kWeight:
      return MemoryUse::kWeights;
    case ValueKind::kGradient:
    case ValueKind::kPushed:
      return MemoryUse::kGradients;
    case ValueKind::kState:
    case ValueKind::kResidual:
      return MemoryUse::kStates;
    case ValueKind::kActivation:
    case ValueKind::kActivationGradient:
    case ValueKind::kGraph:
    case ValueKind::kTarget:
    case ValueKind::kPending:
    case ValueKind::kCache:
    case ValueKind::kLogits:
    case ValueKind::kRouting:
      return MemoryUse::kActivations;
    default:
      return MemoryUse::kBuffers;
  }
}

}  // namespace

std::string_view use_name(MemoryUse use) {
  constexpr std::array<std::string_view, kNumMemoryUses> kNames = {"weights", "gradients", "optimizer states",
                                                                   "activations", "buffers"};
  return kNames[static_cast<size_t>(use)];
}

BytesByUse by_use(const std::map<ValueKind, int64_t>& by_kind, int64_t total) {
  BytesByUse out = {};
  int64_t rest = total;
  for (const auto& [kind, bytes] : by_kind) {
    out[static_cast<size_t>(use_of(kind))] += bytes;
    rest -= bytes;
  }
  out[static_cast<size_t>(MemoryUse::kBuffers)] += rest;
  return out;
}

int64_t OpMemory::total() const { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

const OpMemory* peak_of(const std::vector<OpMemory>& ops) {
  const auto peak = std::max_element(ops.begin(), ops.end(),
                                     [](const OpMemory& a, const OpMemory& b) { return a.total() < b.total(); });
  return peak == ops.end() ? nullptr : &*peak;
}

}  // namespace herd::program
