// Builds decoders of pre-norm blocks, with a tied or an untied head.
//   gpt    learned positions (wpe), LayerNorm or RMSNorm, GELU, biases
//   llama  rotary positions, RMSNorm, SwiGLU, no biases, no wpe
//   moe    as llama, with a mixture of experts in place of the feed-forward layer (nn/experts.h)
//   All may have fewer key and value heads than heads, and heads that are not width / heads wide.
//   blocks: embedding | h.0 .. h.L-1 | head
//   groups: untied  embedding (wte, wpe) | h.0 .. | head (ln_f, head)
//           tied    wte | wpe | h.0 .. | ln_f, where the first and the last block both read wte
//           moe     h.0 | h.0.experts | h.1 | ..: a group of its own for the experts of each layer
//   Parameters that model.frozen names form groups of their own (spec/frozen.h).
// Names, shapes and order are those of spec::ModelTable.   Threads: torch's; pure.
// Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; Touvron et al. 2023,
// arXiv:2302.13971 and arXiv:2307.09288 (Llama); Jiang et al. 2024, arXiv:2401.04088 (Mixtral).
#pragma once

#include <optional>

#include "herd/models/model.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::models {

struct ModelOptions {
  at::ScalarType dtype = at::kFloat;
  std::optional<at::ScalarType> gradient_dtype = {};  // unset: dtype
  at::Device device = at::kCPU;
  bool recompute_attention = false;  // strategy.recompute = "selective"
  bool ring = false;                 // true: keys and values pass around these ranks (ring_attention.h)
  int context_ranks = 1;  // ranks that share the tokens of each sequence, so that layers are parts (context_parts.h)
  int expert_ranks = 1, expert_place = 0;  // ranks that hold equal parts of the experts, and which of them this is
};

// Returns the options with which make_model() builds a table that is not split.
ModelOptions options_of(const spec::ModelTable& table);

// Says which part of a model a rank holds: its places on the axes of tensor parallelism and of the ranks that hold
// experts.
struct RankPlace {
  int tensor = 0, experts = 0;
};

// Builds a model with the blocks and groups of the table. Calls make_split_decoder() where table.is_split(), else
// make_model(shape, options_of(table)). Its parameters are on `device`.
Model make_model(const spec::RunFile::Model& shape, const spec::ModelTable& table, RankPlace place,
                 at::Device device = at::kCPU);
// Builds the part of the rank at `place`, with initial weights of the whole. REQUIRES table.is_split().
Model make_split_decoder(const spec::RunFile::Model& shape, const spec::ModelTable& table, RankPlace place,
                         at::Device device = at::kCPU);

// Builds the whole model. Throws kBadConfig for a kind that this version doesn't build, and for shapes that can't be.
Model make_model(const spec::RunFile::Model& shape, const ModelOptions& options = {});

}  // namespace herd::models
