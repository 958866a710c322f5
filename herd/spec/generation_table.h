// Makes the model table of a model that continues texts. It says what blocks hold and cost in a pass over a given
// number of tokens, without graphs. Symbols: B sequences, C the model's context, K key heads of width d, V vocabulary.
//   cache   has 2 * B * C * K * d elements in each block with attention: the keys and values of a whole context.
//   logits  has B * V fp32 numbers, for the last token of each sequence, in place of the loss.
// Threads: pure.
#pragma once

#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::spec {

// Returns the table of program_table(), for passes over `tokens` tokens of each of `sequences`. A pass reads all
// weights, so their bytes are in the memory traffic of the blocks that multiply with them. Attention's FLOPs
// are the mean over the places of a whole context. REQUIRES 1 <= tokens <= model.context and a decoder. Throws as
// program_table() does.
ModelTable generation_table(const RunFile& run, int64_t sequences, int64_t tokens);
// Computes the same from two tables of program_table() for one model. `whole` has the model's context, and `pass` has
// the tokens of a pass as its context.
ModelTable generation_table(const ModelTable& whole, ModelTable pass);

}  // namespace herd::spec
