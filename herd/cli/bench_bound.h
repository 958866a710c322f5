// Measures the limit that memory sets to an operation. It runs the kernel on all ranks at once, which meet only at
// the start. Each rank uses private memory of four times the last cache, but all ranks of the machine 512 MiB at most.
// Threads: one at a time; once() is collective.
#pragma once

#include <cstdint>
#include <vector>

#include "herd/cli/bench_operation.h"
#include "herd/comm/communicator.h"
#include "herd/kernels/write_kind.h"
#include "herd/memory/shared_memory.h"

namespace herd::cli {

class MemoryBound {
 public:
  MemoryBound(Communicator& comm, BenchShape shape);
  // Returns the microseconds of the slowest rank for a message of one byte.
  double once(kernels::WriteKind store);

 private:
  Communicator& comm_;
  double message_bytes_;  // of the message whose share the buffers hold
  int64_t bytes_;         // of one buffer
  SharedMemory memory_;
  std::vector<void*> outputs_;
  std::vector<const void*> inputs_;
};

}  // namespace herd::cli
