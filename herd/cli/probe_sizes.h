// How many bytes the probe of a host moves (host_probe.h), so that memory, caches, stage and rings are as the operation
// finds them. Threads: pure.
#pragma once

#include <cstdint>
#include <optional>

#include "herd/base/dtype.h"
#include "herd/base/reduce_op.h"

namespace herd::cli {

struct ProbedOperation {
  int64_t bytes = 0;  // of the whole message, as schedule.h defines it
  DType dtype = DType::kF32;
  std::optional<ReduceOp> reduce = {};  // none: it moves bytes
  bool in_place = false;                // inputs are outputs, too
  bool rooted = false;                  // while one rank writes, others read

  bool reduces_elsewhere() const { return reduce && !in_place; }
  bool copies_what_was_read() const { return reduce && in_place && !rooted; }  // where peers have read its input
  bool takes_whole() const { return rooted && in_place; }                      // ranks read all that another one has
};

// Multiples of 64, but the messages: of 8.
struct ProbeSizes {
  int64_t buffer = 0;   // of one of the two that are copied
  int64_t part = 0;     // of one rank's part of the message
  int64_t staged = 0;   // of a piece that staged algorithms cut it into
  int64_t read = 0;     // of a peer's memory, in one go
  int64_t message = 0;  // of one that passes a ring or a tree
  int64_t shorter = 0;  // and of a shorter one

  // What the operation's memory holds: a message for each rank, all that is read and what it is added to, or two parts.
  int64_t memory(const ProbedOperation& operation, int ranks) const;
  // Where the one of two parts lies in such memory, and the other.
  int64_t place(const ProbedOperation& operation, int ranks, bool other) const;
};

// `by_turns`: ranks of several hosts outnumber cores, so that short copies would be lost in their turns.
ProbeSizes probe_sizes(const ProbedOperation& operation, int ranks, bool by_turns);

}  // namespace herd::cli
