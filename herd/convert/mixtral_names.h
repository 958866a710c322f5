// Maps Mixtral between herd and Hugging Face's transformers: names and config.json. The model is herd's kind = "moe"
// with a softmax router whose chosen weights are normalised, and without shared experts. The equations are the same.
//   herd                          Hugging Face, beside the names of Llama (llama_names.h)
//   h.N.router.weight             layers.N.block_sparse_moe.gate.weight
//   h.N.experts.gate.weight[e]    layers.N.block_sparse_moe.experts.e.w1.weight
//   h.N.experts.down.weight[e]    layers.N.block_sparse_moe.experts.e.w2.weight
//   h.N.experts.up.weight[e]      layers.N.block_sparse_moe.experts.e.w3.weight
// Newer versions of transformers hold the experts of a layer in one tensor, and still store them so.
// Source: Jiang et al. 2024, arXiv:2401.04088. Threads: pure.
#pragma once

#include "herd/convert/transformers_format.h"

namespace herd::convert {

// These are as those of llama_names.h. parse_mixtral_config() also throws kBadConfig for noise in the router.
std::vector<StoredTensor> mixtral_tensors(const Weight& weight, const spec::RunFile::Model& model);
std::string format_mixtral_config(const TransformersConfig& config, std::string_view dtype);
TransformersConfig parse_mixtral_config(std::string_view text, const std::string& file);

const TransformersFormat& mixtral_format();

}  // namespace herd::convert
