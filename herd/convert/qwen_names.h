// Maps Qwen2, Qwen3 and their mixtures of experts between herd and Hugging Face's transformers: names and config.json.
// The first two are herd's kind = "llama", the others kind = "moe" with a softmax router. The equations are the same.
//   qwen2       model.qkv_bias          qwen2_moe  model.shared_experts and model.shared_gate, any model.qkv_bias
//   qwen3       model.qk_norm           qwen3_moe  model.qk_norm, no shared experts
//   herd                          Hugging Face, beside the names of Llama (llama_names.h)
//   h.N.attn.qkv.bias             layers.N.self_attn.{q,k,v}_proj.bias, one after the other
//   h.N.attn.{q,k}_norm.weight    layers.N.self_attn.{q,k}_norm.weight
//   h.N.router.weight             layers.N.mlp.gate.weight
//   h.N.experts.gate.weight[e]    layers.N.mlp.experts.e.gate_proj.weight; so up and down
//   h.N.shared.gate.weight        layers.N.mlp.shared_expert.gate_proj.weight; so up and down
//   h.N.shared_gate.weight        layers.N.mlp.shared_expert_gate.weight
// mlp_only_layers may name first layers, which are model.dense_layers.
// Source: Qwen team 2024, arXiv:2407.10671 (Qwen2); 2025, arXiv:2505.09388 (Qwen3). Threads: pure.
#pragma once

#include "herd/convert/transformers_format.h"

namespace herd::convert {

enum class Qwen : uint8_t { k2, k3, k2Moe, k3Moe };

// Its parse_config() throws as parse_llama_config(); also kBadConfig for windows of attention (use_sliding_window), for
// decoder_sparse_step or mlp_only_layers that leave out experts in other layers than the first ones, and for a
// shared expert that is not a whole number of experts wide.
const TransformersFormat& qwen_format(Qwen which);

}  // namespace herd::convert
