// Reads and writes where the documents of a token file end (docs/formats/tokens.md): `train.documents` beside
// `train.tokens`. The file is 64 bytes of header, then the ends as numbers of 8 bytes: document i is tokens
// [end i-1, end i). Ends rise, and the last one is the number of tokens. Opening reads and checks all of it; it throws
// kCorruptFile naming file, byte offset and rule, also where the ends are of other tokens than the file beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "herd/data/token_file.h"

namespace herd {

// Returns "NAME.documents" of "NAME.tokens".
std::filesystem::path documents_path(std::filesystem::path tokens);

// Reads the ends of the documents of a token file. Throws kBadConfig where there is no such file beside it.
// Threads: any.
std::vector<int64_t> read_document_ends(const TokenFile& tokens);

// Reads the ends of a file with this number of tokens, whose ids have this checksum.
std::vector<int64_t> read_document_file(const std::filesystem::path& path, int64_t tokens, uint32_t ids_checksum);

// Writes such a file, atomically as AtomicFile. REQUIRES ends that rise, each > 0.
void write_document_file(const std::filesystem::path& path, const std::vector<int64_t>& ends, uint32_t ids_checksum);

}  // namespace herd
