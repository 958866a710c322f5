// Defines what device memory is used for while a step runs, op by op, in five kinds that need no knowledge of
// programs. simulate.h predicts it, train/measured_memory.h measures it, draw_program.h draws it. Threads: pure.
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
  kActivations,  // inputs of blocks, what backward needs of them, their gradients, labels; caches and logits
  kBuffers,      // pools, and memory that an op takes and gives back while it runs
};
inline constexpr int kNumMemoryUses = 5;
using BytesByUse = std::array<int64_t, kNumMemoryUses>;

std::string_view use_name(MemoryUse use);  // returns "optimizer states"

// Splits `total` bytes by use: values hold the bytes of `by_kind`; the rest are buffers.
BytesByUse by_use(const std::map<ValueKind, int64_t>& by_kind, int64_t total);

// Holds the peak of memory while one op of the compute lane runs.
struct OpMemory {
  int op = -1;       // index in Program::ops
  std::string name;  // "backward of block3 mb0"
  double begin_us = 0, end_us = 0;
  BytesByUse bytes = {};
  int64_t host_bytes = 0, file_bytes = 0;  // of values that the host and files hold meanwhile; 0 where measured
  int64_t total() const;
};

// Returns the first op with most bytes; null where there are no ops.
const OpMemory* peak_of(const std::vector<OpMemory>& ops);

}  // namespace herd::program
