// Says where documents lie in sequences that are packed of several (data/packed_samples.h). Positions count from the
// beginning of each document, and no token attends to one of another document. Context::document_begins lists the
// places among the B x T tokens of a micro-batch at which one begins, in order; each sequence begins one.
// Threads: pure.
#pragma once

#include "herd/nn/block.h"

namespace herd::nn {

// Returns the documents of sequence `row`, of T tokens, as spans of it in order.
std::vector<TokenSpan> documents_of(const std::vector<int64_t>& begins, int64_t row, int64_t T);

// Returns the positions within their documents of the tokens that this rank has of each sequence. Tokens of padding
// behind the last one continue the count.
std::vector<std::vector<TokenSpan>> document_positions(const Context& context, int64_t B, const TokenCut& cut);
// Returns the same as a tensor (B, tokens of this rank), int64, which is made on the device: nothing waits for it.
at::Tensor document_positions_tensor(const Context& context, int64_t B, const TokenCut& cut,
                                     c10::Device device = at::kCPU);

// Returns where those tokens of a document lie that a rank has, among the rank's tokens: they are one range. `is_last`:
// the padding behind the sequence belongs to it.
TokenSpan own_part(const TokenSpan& document, bool is_last, const TokenCut& cut);

}  // namespace herd::nn
