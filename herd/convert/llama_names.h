// Maps Llama between herd and Hugging Face's transformers: names and config.json. The model is herd's kind = "llama".
// The equations are the same, and rotary positions turn the same pairs of elements of a head, i and i + d/2 of d. So
// the logits are the same and no weight is permuted.
//   herd                 Hugging Face ("model." before all but lm_head)
//   wte.weight           embed_tokens.weight
//   h.N.ln_1.weight      layers.N.input_layernorm.weight
//   h.N.attn.qkv.weight  layers.N.self_attn.{q,k,v}_proj.weight, one below the other
//   h.N.attn.proj.weight layers.N.self_attn.o_proj.weight
//   h.N.ln_2.weight      layers.N.post_attention_layernorm.weight
//   h.N.mlp.{gate,up,down}.weight  layers.N.mlp.{gate,up,down}_proj.weight
//   ln_f.weight          norm.weight                       head.weight  lm_head.weight (untied models only)
// Source: Touvron et al. 2023, arXiv:2302.13971. Threads: pure.
#pragma once

#include "herd/convert/transformers_format.h"

namespace herd::convert {

// Returns the tensors of transformers whose rows, one below the other, are those of the weight.
std::vector<StoredTensor> llama_tensors(const Weight& weight, const spec::RunFile::Model& model);

// Returns the text of config.json; `dtype` is the name that torch has for the type: "float32".
std::string format_llama_config(const TransformersConfig& config, std::string_view dtype);
// Reads config.json. Positions are stated by rope_theta and rope_scaling, or by rope_parameters as newer versions write
// them (llama_positions_internal.h). Throws kCorruptFile if `text` is no JSON object or a number is missing. Throws
// kBadConfig with the member, its line, its value and what herd has, for a model that computes something else:
// hidden_act, attention_bias, mlp_bias, sliding_window, layer_types, other kinds of positions.
TransformersConfig parse_llama_config(std::string_view text, const std::string& file);

const TransformersFormat& llama_format();

}  // namespace herd::convert
