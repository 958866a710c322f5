// Makes the layer table of a model that continues texts: what its blocks hold and cost while they read some tokens at a
// time and keep no graph. Symbols: B sequences, C the model's context, K key heads of width d, V vocabulary.
//   cache   2 * B * C * K d elements for each block with attention: keys and values of all tokens
//   logits  B * V elements of fp32, for the last token of each sequence, in place of the loss
// Threads: pure.
#pragma once

#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::spec {

// Returns program_table() of the run, for passes over `tokens` tokens of each of `sequences`. A pass reads all weights,
// so their bytes are in the memory traffic of the blocks that multiply with them. Attention's arithmetic is that of the
// mean place in a context. REQUIRES 1 <= tokens <= model.context and a decoder. Throws as program_table() does.
ModelTable generation_table(const RunFile& run, int64_t sequences, int64_t tokens);
// Returns the same from two tables of one chain: one for a whole context, and one for a context as long as a pass.
ModelTable generation_table(const ModelTable& whole, ModelTable pass);

}  // namespace herd::spec
