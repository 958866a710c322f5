// The layer table of a model that continues texts: what its blocks hold and cost while they read so many tokens at a
// time and keep no graph.   B sequences, C the model's context.
//   cache  of each block with attention, 2 * B * C * K d elements (K key heads of width d): keys and values of all
//   tokens logits B * V fp32, of the last token of each sequence, in place of the loss
// Threads: pure.
#pragma once

#include "herd/spec/model_table.h"

namespace herd::spec {

// As program_table() of the run, for passes over `tokens` tokens of each of `sequences`. A pass reads all weights, so
// their bytes are in the memory traffic of the blocks that multiply with them. Attention's arithmetic is that of the
// mean place in a context. REQUIRES 1 <= tokens <= model.context and a decoder. Throws as program_table() does.
ModelTable generation_table(const RunFile& run, int64_t sequences, int64_t tokens);
// The same of two tables of one chain: of a whole context, and of a context as long as a pass.
ModelTable generation_table(const ModelTable& whole, ModelTable pass);

}  // namespace herd::spec
