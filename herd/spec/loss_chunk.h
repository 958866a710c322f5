// Computes the size of the chunks in which the loss block makes logits. Threads: pure.
#pragma once

#include <cstdint>

namespace herd::spec {

// Returns the rows of logits that the loss block holds at a time: `rows` in the fewest equal pieces of at most 64 MiB
// of fp32.
int64_t loss_chunk_rows(int64_t vocab, int64_t rows);

}  // namespace herd::spec
