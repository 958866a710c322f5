// Files that go along with the weights of a model in its folder, without being weights: a tokenizer, as transformers or
// sentencepiece keeps it, and generation_config.json. They are small, and kept as they are. Threads: pure.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "herd/storage/file_system.h"

namespace herd::convert {

using Companions = std::map<std::string, std::string>;  // name -> bytes

inline constexpr char kGenerationConfig[] = "generation_config.json", kSentencePiece[] = "tokenizer.model";

// Those of a folder of weights. Throws kStorage where one can't be read.
Companions read_companions(const std::filesystem::path& folder);

// Durable when it returns. Throws as AtomicFile.
void write_companions(const std::filesystem::path& folder, const Companions& companions,
                      FileSystem& files = FileSystem::system());

}  // namespace herd::convert
