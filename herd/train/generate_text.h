// Continues a text with the weights of a checkpoint, on one rank, and writes it to standard output. Threads: one at a
// time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/models/generate_options.h"

namespace herd::train {

struct GenerateTextOptions {
  std::string checkpoint;          // path of weights in any format that convert::find_weights() knows
  std::string prompt;              // text to continue, in UTF-8; empty = the token that ends a text
  bool replace_bad_bytes = false;  // U+FFFD for each byte of the prompt that is no UTF-8, in place of an error
  // Token ids to continue, in place of `prompt`; then ids are written, without a tokenizer.
  std::vector<int64_t> prompt_ids;
  // Path of the tokenizer's file, of sentencepiece; empty = tokenizer.model beside the weights, else in the data folder
  // of their run file. One that herd did not learn encodes as LlamaTokenizer of transformers does, and is never taken
  // without being named where the weights came from transformers.
  std::string tokenizer;
  int64_t budget_bytes = 0;                                              // device memory that it may use; 0 = no limit
  models::GenerateOptions sampling = {.temperature = 0.7, .top_k = 40};  // says how tokens are drawn, and how many
};

// Returns the token ids of words such as "464,2068". Throws kBadConfig for an id that is missing, as between two
// commas, or that is no whole number of at least 0.
std::vector<int64_t> parse_prompt_ids(const std::string& words);

// Writes the prompt, then each new token as it comes, then a line feed. Tokens are written as text, or as ids with
// spaces between them. It ends at a token that ends a text, or after sampling.max_tokens new tokens. Ids end with the
// id that ends the text; text does not show it. Replaces sampling.on_token. Throws kOverBudget, before it allocates
// anything, where a pass needs more than `budget_bytes`. Throws kBadConfig for options that do not fit and for a
// bert, which has no next token; kCorruptFile and kStorage for files that it cannot use.
void generate(const GenerateTextOptions& options);

}  // namespace herd::train
