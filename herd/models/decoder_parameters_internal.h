// Defines what the parameters of a decoder are, before ranks share them.
#pragma once

#include <map>
#include <string>

#include "herd/nn/transformer_block.h"
#include "herd/spec/run_file.h"

namespace herd::models {

// Throws kBadConfig for a kind, norm or scaling of positions that there is not. Positions are learned parameters where
// its q and k do not turn.
nn::TransformerShape layer_shape(const spec::RunFile::Model& shape, bool recompute_attention);
// Returns every parameter that some form of the model has, by name. Throws kBadConfig for shapes that can't be.
std::map<std::string, nn::ParameterSpec> decoder_parameters(const spec::RunFile::Model& shape,
                                                            const nn::TransformerShape& layer);

}  // namespace herd::models
