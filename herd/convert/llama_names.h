// Llama as Hugging Face's transformers keeps it: names and config.json. The model is herd's kind = "llama": the same
// equations and the same halves of a head that rotary positions turn, so the same logits; no weight is turned.
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

std::vector<TheirTensor> llama_tensors(const Weight& weight, const spec::RunFile::Model& model);

std::string format_llama_config(const TransformersConfig& config, std::string_view dtype);
// Positions are stated by rope_theta and rope_scaling, or by rope_parameters as newer versions write them.
// Throws kCorruptFile if `text` is no JSON object or a number is missing; kBadConfig naming the member, its value and
// what herd has, for a model that computes something else: hidden_act, attention_bias, mlp_bias, sliding_window, other
// kinds of positions.
TransformersConfig parse_llama_config(std::string_view text, const std::string& file);

const TransformersFormat& llama_format();

}  // namespace herd::convert
