// Writes a tokenizer of herd as Hugging Face's transformers reads one: tokenizer.json (of the tokenizers library) and
// tokenizer_config.json. AutoTokenizer.from_pretrained(FOLDER) then gives the ids of Tokenizer::encode(), and decodes
// them to the same text. Each line begins with the space mark of sentencepiece (U+2581), a line feed stands alone, and
// unknown characters are bytes. Merges are ordered by the piece that they make, as sentencepiece learned them. One
// difference: "<s>" and "</s>" in a text are marks there, and letters here. Threads: pure.
#pragma once

#include <string>

#include "herd/data/tokenizer.h"

namespace herd {

std::string transformers_tokenizer(const Tokenizer& tokenizer);  // returns the text of tokenizer.json
std::string transformers_tokenizer_config();                     // returns the text of tokenizer_config.json

}  // namespace herd
