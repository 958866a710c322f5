// herd checkpoint convert SOURCE [--to herd|gpt2] [--dtype fp32|bf16|fp16] --out DIR writes the weights in another
// format or precision, without optimizer states.
#pragma once

#include <string>

#include "herd/convert/convert.h"

namespace CLI {
class App;
}

namespace herd::cli {

void add_checkpoint_convert_command(CLI::App& app);
// Returns the line to print; throws as convert::convert().
std::string convert_checkpoint(convert::ConvertOptions options);

// Returns herd's own tokenizer where the weights were trained with one and their folder does not hold it. It is
// tokenizer.model of the data, and for transformers tokenizer.json and tokenizer_config.json.
convert::Companions tokenizer_of_data(const convert::WeightSource& source, convert::Format to);

}  // namespace herd::cli
