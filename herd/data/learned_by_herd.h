// Tells whether herd learned a sentencepiece model, by the settings of the trainer that the model keeps. A tokenizer of
// herd takes a text line by line; those of others take it as a whole.   Threads: pure.
#pragma once

#include <string_view>

namespace herd {

// `model` is the bytes of a sentencepiece model. False for bytes that are none.
bool is_learned_by_herd(std::string_view model);

}  // namespace herd
