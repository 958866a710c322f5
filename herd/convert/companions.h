// Reads and writes the companions of a model's weights: the small files in its folder that are no weights. These are a
// tokenizer, as transformers or sentencepiece writes it, and generation_config.json. Their bytes never change, and a
// copy is open to no more users than its source. Threads: any.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "herd/storage/small_file.h"

namespace herd::convert {

using Companions = std::map<std::string, SmallFile>;  // by name

inline constexpr char kGenerationConfig[] = "generation_config.json", kSentencePiece[] = "tokenizer.model";

// Tells whether one of these is a tokenizer.
bool has_tokenizer(const Companions& companions);

// Returns the companions in a folder of weights. Of a checkpoint it follows no link; a Hugging Face folder may
// be made of links. Throws kStorage where one cannot be read or is no file, kBadConfig where one is a pointer of Git
// LFS.
Companions read_companions(const std::filesystem::path& folder);

// Writes the companions into the folder; they are durable when it returns. Throws as AtomicFile.
void write_companions(const std::filesystem::path& folder, const Companions& companions,
                      FileSystem& files = FileSystem::system());

}  // namespace herd::convert
