// Maps GPT-2 between herd and Hugging Face's transformers: names, layouts and config.json. The model is herd's
// kind = "gpt" with LayerNorm. The equations are the same (pre-norm blocks, tanh gelu, softmax(q k^T / sqrt(d))), and
// so are the logits. transformers stores linear layers as (in, out), herd as (out, in). Embeddings have the same layout
// in both.
//   herd                    Hugging Face                 herd                   Hugging Face
//   wte.weight  wpe.weight  the same                     h.N.ln_1.*  h.N.ln_2.* the same
//   h.N.attn.qkv.*          h.N.attn.c_attn.*            h.N.mlp.up.*           h.N.mlp.c_fc.*
//   h.N.attn.proj.*         h.N.attn.c_proj.*            h.N.mlp.down.*         h.N.mlp.c_proj.*
//   ln_f.*                  the same                     head.weight            lm_head.weight (untied models only)
// Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". Threads: pure.
#pragma once

#include <string>
#include <string_view>

#include "herd/convert/transformers_format.h"

namespace herd::convert {

struct Gpt2Name {
  std::string name;         // that of transformers
  bool transposed = false;  // transformers stores (in, out)
};

// Returns the name of a parameter of a "gpt" model.
Gpt2Name gpt2_name(std::string_view herd_name);

// Throws kBadConfig with the key where the format cannot state the model. It can state kind = "gpt" with LayerNorm, as
// many key and value heads as heads, and heads that are width / heads wide.
void require_gpt2(const spec::RunFile::Model& model);

// Returns the text of config.json; `dtype` is the name that torch has for the type: "float32".
std::string format_gpt2_config(const TransformersConfig& config, std::string_view dtype);
// Reads config.json. Throws kCorruptFile if `text` is no JSON object or a number is missing. Throws kBadConfig with the
// member and its value for a model that computes something else. Takes bos_token_id and eos_token_id as
// transformers does: a number, null for none, or a list of which any ends a text. An id beyond the vocabulary is
// accepted, and never occurs.
TransformersConfig parse_gpt2_config(std::string_view text, const std::string& file);
const TransformersFormat& gpt2_format();  // returns the functions above as a format (transformers_format.h)

}  // namespace herd::convert
