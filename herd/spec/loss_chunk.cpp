#include "herd/spec/loss_chunk.h"

#include <algorithm>

namespace herd::spec {

int64_t loss_chunk_rows(int64_t vocab, int64_t rows, bool on_device) {
  const int64_t max_rows = std::max<int64_t>(1, (int64_t{on_device ? 512 : 64} << 20) / (4 * vocab));
  const int64_t chunks = (rows + max_rows - 1) / max_rows;
  return (rows + chunks - 1) / chunks;
}

}  // namespace herd::spec
