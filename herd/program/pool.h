// Defines a pool of buffers that values share: how many there are, how large each is, and which value (item) gets
// which. Work goes on in visits, one after the other; a visit is a pass over a block. A use holds a buffer from one
// visit to another. With `depth` k a buffer rests for k-1 visits between two uses, so that many uses may be prepared
// ahead.
//   Two items share a buffer only if their uses are at least `depth` visits apart and their op ranges do not meet. They
//   also share one only if the larger has at most twice the bytes of the smaller: a small item never waits for the
//   buffer of an embedding.
// Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

namespace herd::program {

struct PoolUse {
  int item = 0;                         // index of the value
  int first_visit = 0, last_visit = 0;  // both included
  int first_op = 0, last_op = -1;       // both included; last_op < first_op: no op range, so that visits alone count
};

struct Pool {
  std::vector<int> buffer_of;         // by item; -1 for one without a use
  std::vector<int64_t> buffer_bytes;  // by buffer
  int64_t bytes() const;
};

// Assigns buffers; `bytes` are by item, and items get buffers in the order of the first visits of `uses`.
Pool assign_pool(const std::vector<int64_t>& bytes, const std::vector<PoolUse>& uses, int depth);

}  // namespace herd::program
