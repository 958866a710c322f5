// Defines what device memory is used for while a step runs, op by op, in five kinds that a reader needs no program to
// understand. Predicted by simulate.h, measured by train/measured_memory.h, drawn by draw_program.h.   Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "herd/program/program.h"

namespace herd::program {

enum class MemoryUse : uint8_t {
  kWeights,
  kGradients,
  kStates,       // of the optimizer
  kActivations,  // inputs of blocks, what backward needs of them, their gradients, labels
  kBuffers,      // of pools, and what an op takes and gives back while it runs
};
inline constexpr int kNumMemoryUses = 5;
using BytesByUse = std::array<int64_t, kNumMemoryUses>;

std::string_view use_name(int use);  // "optimizer states"

// `total` bytes of which values hold those of `by_kind`; the rest is buffers.
BytesByUse by_use(const std::map<ValueKind, int64_t>& by_kind, int64_t total);

// The most that is held while one op of the compute lane runs.
struct OpMemory {
  int op = -1;       // index in Program::ops
  std::string name;  // "backward of block3 mb0"
  double begin_us = 0, end_us = 0;
  BytesByUse bytes = {};
  int64_t total() const;
};

// The first op with most bytes; null where there is none.
const OpMemory* peak_of(const std::vector<OpMemory>& step);

}  // namespace herd::program
