#include "herd/comm/packing.h"

#include <algorithm>

#include "herd/kernels/copy.h"
#include "herd/kernels/reduce_kernel.h"

namespace herd::comm {

std::byte* Packing::reserve(int64_t bytes) {
  memory_.resize(static_cast<size_t>(bytes));
  return memory_.data();
}

bool Packing::move_some(const std::vector<Piece>& pieces, Place& at, double factor) {
  int64_t bytes_left = kTurnBytes;
  bool moved = false;
  for (; at.piece < pieces.size() && bytes_left > 0; ++at.piece, at.offset = 0) {
    const Piece& piece = pieces[at.piece];
    const int64_t bytes = std::min(bytes_left, piece.bytes - at.offset);
    void* const target[] = {static_cast<std::byte*>(piece.to) + at.offset};
    const void* const source[] = {static_cast<const std::byte*>(piece.from) + at.offset};
    if (factor != 1)
      kernels::reduce(target, source, bytes / size_of(dtype_), dtype_, ReduceOp::kSum, factor);
    else if (bytes > 0 && target[0] != source[0])
      kernels::copy(target, source[0], bytes);
    moved = true;
    bytes_left -= bytes;
    at.offset += bytes;
    if (at.offset < piece.bytes) break;
  }
  return moved;
}

}  // namespace herd::comm
