// Computes the size of the chunks in which the loss block makes logits. Threads: pure.
#pragma once

#include <cstdint>

namespace herd::spec {

// Returns the rows of logits that the loss block holds at a time: `rows` in the fewest equal pieces of at most 64 MiB
// of fp32, 512 MiB on a device.
int64_t loss_chunk_rows(int64_t vocab, int64_t rows, bool on_device = false);

}  // namespace herd::spec
