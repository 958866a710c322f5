// Defines what the parameters of a decoder are, for the forms in which it is built.
#pragma once

#include <vector>

#include "herd/nn/transformer_block.h"
#include "herd/spec/run_file.h"

namespace herd::models {

// Throws kBadConfig for a kind, norm or scaling of positions that there is not. Positions are learned parameters where
// its q and k do not turn.
nn::TransformerShape layer_shape(const spec::RunFile::Model& shape, bool recompute_attention);
nn::ParameterSpec token_embedding(const spec::RunFile::Model& shape);
nn::ParameterSpec position_embedding(const spec::RunFile::Model& shape);
nn::ParameterSpec output_projection(const spec::RunFile::Model& shape);
std::vector<nn::ParameterSpec> final_norm(const nn::TransformerShape& layer);

}  // namespace herd::models
