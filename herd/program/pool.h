// A pool of buffers that values share: how many there are, how large, and which value gets which.
// Work goes on in visits, one after the other (a pass over a block). A use holds a buffer from one visit to another.
// With `depth` k a buffer is not given away again within k-1 visits, so that many uses may be prepared ahead.
//   Two items share a buffer only if no uses of theirs come that close, and the larger has at most twice the bytes of
//   the smaller: a small one never waits for the buffer of an embedding.
// Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

namespace herd::program {

struct PoolUse {
  int item = 0;
  int first_visit = 0, last_visit = 0;
  int begin = 0, end = -1;  // where in an order of ops it holds the buffer, both included; empty = the visits say all
};

struct Pool {
  std::vector<int> buffer_of;    // by item; -1 for one without a use
  std::vector<int64_t> buffers;  // bytes of each
  int64_t bytes() const;
};

// `bytes` by item; `uses` in the order of their first visits, in which items get buffers.
Pool assign_pool(const std::vector<int64_t>& bytes, const std::vector<PoolUse>& uses, int depth);

}  // namespace herd::program
