// Notes in a checkpoint which data its run reads, and compares that with the data of a run that goes on from it.
// Threads: any.
#pragma once

#include <map>
#include <string>

#include "herd/spec/run_file.h"

namespace herd::train {

// Returns the notes of a checkpoint: how many tokens the data holds, and its tokenizer (identify_tokenizer()). Random
// data has none. Throws as TokenFile and identify_tokenizer().
std::map<std::string, std::string> data_notes(const spec::RunFile& run);

// Compares the notes of a checkpoint at `source` with those of the data that a run reads. Throws kBadConfig where the
// tokenizers differ: the model's embeddings are of other tokens then. Returns "data 4096 tokens -> 8192 tokens" where
// the number of tokens differs, else an empty text. Notes without the data, of an older herd, agree with any.
std::string compare_data(const std::map<std::string, std::string>& checkpoint_notes,
                         const std::map<std::string, std::string>& notes, const std::string& source);

}  // namespace herd::train
