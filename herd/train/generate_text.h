// Writes text with the weights of a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "herd/models/generate_options.h"

namespace herd::train {

struct GenerateOptions {
  std::string checkpoint;  // weights of any format (convert::find_weights)
  std::string prompt;
  std::vector<int64_t> ids;  // the prompt as token ids: then no tokenizer is needed, and ids are written
  std::string tokenizer;     // empty = tokenizer.model beside the weights, else in the data folder of their run file
  int64_t budget = 0;        // bytes of device memory; 0 = no limit
  models::GenerateOptions sample = {.temperature = 0.7, .top_k = 40};
};

// Writes prompt and continuation to standard output as they come: text, or ids with spaces between them, up to the end
// of the text or the number asked for. An id that ends the text is the last one written. Throws
// kBadConfig, kCorruptFile, kStorage; kOverBudget before anything is allocated.
void generate(const GenerateOptions& options);

}  // namespace herd::train
