// Builds decoders of pre-norm blocks, and BERT's encoder, with a tied or an untied head.
//   gpt    learned positions (wpe), LayerNorm or RMSNorm, GELU, biases
//   llama  rotary positions, RMSNorm, SwiGLU, no biases, no wpe
//   moe    as llama, with a mixture of experts in place of the feed-forward layer (nn/experts.h)
//   bert   as gpt, but norms after the sums, exact GELU, tokens that see all others, a head for masked tokens
//   All may have fewer key and value heads than heads, and heads that are not width / heads wide.
//   blocks: embedding | h.0 .. h.L-1 | head
//   groups: untied  embedding (wte, wpe) | h.0 .. | head (ln_f, head)
//           tied    wte | wpe | h.0 .. | ln_f, where the first and the last block both read wte
//           moe     h.0 | h.0.experts | h.1 | ..: a group of its own for the experts of each layer
//           bert    wte | embedding (wpe, segments, ln_embedding) | h.0 .. | head (masked.dense, .ln, .bias)
//   Parameters that model.frozen names form groups of their own (spec/frozen.h).
// Names, shapes and order are those of spec::ModelTable.   Threads: torch's; pure.
// Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; Touvron et al. 2023,
// arXiv:2302.13971 and arXiv:2307.09288 (Llama); Jiang et al. 2024, arXiv:2401.04088 (Mixtral).
#pragma once

#include "herd/models/model.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::models {

// Says which part of a model a rank holds: its places on the axes of tensor parallelism and of the ranks that hold
// experts.
struct RankPlace {
  int tensor = 0, experts = 0;
};

// Builds the part of the rank at `place` of a model with the blocks and groups of the table, with initial weights of
// the whole. Its parameters are on `device`. Throws kBadConfig for a kind that this version doesn't build, and for
// shapes that can't be.
Model make_model(const spec::RunFile::Model& shape, const spec::ModelTable& table, RankPlace place,
                 at::Device device = at::kCPU);

// Builds the whole model of one rank, in fp32.
Model make_model(const spec::RunFile::Model& shape);

}  // namespace herd::models
