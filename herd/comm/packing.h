// A list of buffers as one message: copied into one piece of memory before the operation, and out of it afterwards, in
// turns that keep nobody else waiting. Also where inputs are multiplied by a factor first.
//   Traffic: 2 * bytes read and written each way; nothing where only a factor is applied in place.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "herd/base/dtype.h"

namespace herd::comm {

// Moved or reduced in one turn: few enough that other operations, deadlines and abort() are not kept waiting.
inline constexpr int64_t kTurnBytes = 1 << 20;

class Packing {
 public:
  Packing(DType dtype, double factor) : dtype_(dtype), factor_(factor) {}
  std::byte* reserve(int64_t bytes);  // the message; once
  // Copied before the operation, times the factor, and copied after it. from == to only multiplies.
  void load(const void* from, void* to, int64_t bytes) { loads_.push_back({from, to, bytes}); }
  void store(const void* from, void* to, int64_t bytes) { stores_.push_back({from, to, bytes}); }
  // One turn; false when there was nothing left to do.
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
