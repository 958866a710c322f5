// Sends a list of buffers as one message: it copies them into one piece of memory before the operation, and out of it
// afterwards. It works in turns, so that other operations do not wait. It also multiplies inputs by a factor first,
// where one is given.
//   It reads and writes 2 * bytes each way, and nothing more where a factor is applied in place.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "herd/base/dtype.h"

namespace herd::comm {

// One turn moves or reduces so many bytes: few enough for other operations, deadlines and abort().
inline constexpr int64_t kTurnBytes = 1 << 20;

class Packing {
 public:
  Packing(DType dtype, double factor) : dtype_(dtype), factor_(factor) {}
  std::byte* reserve(int64_t bytes);  // returns memory for the message; call it once
  // load() copies before the operation, times the factor, store() after it. from == to only multiplies.
  void load(const void* from, void* to, int64_t bytes) { loads_.push_back({from, to, bytes}); }
  void store(const void* from, void* to, int64_t bytes) { stores_.push_back({from, to, bytes}); }
  // Run one turn; return false when nothing was left to do.
  bool load_some() { return move_some(loads_, load_at_, factor_); }
  bool store_some() { return move_some(stores_, store_at_, 1); }

 private:
  struct Piece {
    const void* from;
    void* to;
    int64_t bytes;
  };
  struct Place {
    size_t piece = 0;
    int64_t offset = 0;
  };
  bool move_some(const std::vector<Piece>& pieces, Place& at, double factor);

  DType dtype_;
  double factor_;
  std::vector<std::byte> memory_;
  std::vector<Piece> loads_, stores_;
  Place load_at_, store_at_;
};

}  // namespace herd::comm
