// What the parameters of a GPT are, for the forms in which it is built.
#pragma once

#include <string>

#include "herd/nn/transformer_block.h"
#include "herd/spec/run_file.h"

namespace herd::models {

inline constexpr double kDeviation = 0.02;

nn::NormKind norm_kind(const std::string& name);  // throws kBadConfig for one that there is not
nn::TransformerShape layer_shape(const spec::RunFile::Model& shape, bool recompute_attention);
nn::ParameterSpec token_embedding(const spec::RunFile::Model& shape);
nn::ParameterSpec position_embedding(const spec::RunFile::Model& shape);
nn::ParameterSpec output_projection(const spec::RunFile::Model& shape);
std::vector<nn::ParameterSpec> final_norm(const spec::RunFile::Model& shape);

}  // namespace herd::models
