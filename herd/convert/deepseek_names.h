// Maps the first DeepSeek-MoE (model_type "deepseek", which transformers runs by code of the model's own folder)
// between herd and Hugging Face's transformers: names and config.json. It is herd's kind = "moe" with a softmax router,
// shared experts without a gate and dense first layers. The equations are the same. Later ones have another attention
// and are refused (transformers_format()).
//   herd                        Hugging Face, beside the names of Llama (llama_names.h)
//   h.N.router.weight           layers.N.mlp.gate.weight
//   h.N.experts.gate.weight[e]  layers.N.mlp.experts.e.gate_proj.weight; so up and down
//   h.N.shared.gate.weight      layers.N.mlp.shared_experts.gate_proj.weight; so up and down
// Source: Dai et al. 2024, arXiv:2401.06066. Threads: pure.
#pragma once

#include "herd/convert/transformers_format.h"

namespace herd::convert {

// Its parse_config() throws as parse_llama_config(); also kBadConfig where scores, the choice of experts or the layers
// that have them (moe_layer_freq) are others.
const TransformersFormat& deepseek_format();

}  // namespace herd::convert
