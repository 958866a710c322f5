// Reads files of token ids that another program's tokenizer wrote, as documents:
//   NAME.npy     NumPy's format: one dimension of integers of 1 to 8 bytes, little-endian; one document
//   NAME.jsonl   a JSON array of integers on each line, each a document; blank lines are left out
//   any other    raw integers of a stated type, little-endian; one document
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace herd {

struct IdType {
  int bytes = 2;  // of an id: 1, 2, 4 or 8
  bool is_signed = false;
};
IdType parse_id_type(std::string_view name);  // reads "uint16", "uint32", "int32" or "int64"; else throws kBadConfig

struct IdFileOptions {
  std::filesystem::path path;
  std::optional<IdType> raw = {};  // type of the ids of a raw file; unset: only .npy and .jsonl are read
  int64_t vocabulary = 0;
  // Returns how many ids of an array of `count` a visit gets at most; empty = all.
  std::function<int64_t(int64_t count)> max_ids_per_visit = {};
};

using VisitIds = std::function<void(std::span<const int> ids, bool ends_document)>;

// Calls visit() with the ids of one document, or of a part of it; `ends_document` says that it is the last part. Empty
// documents are left out. Throws kBadConfig where the file is not there, of another kind than its name says or of a
// type that is not read. Throws it with the position of an id that is not in [0, vocabulary). Throws kCorruptFile where
// the file is truncated.
void read_id_file(const IdFileOptions& options, const VisitIds& visit);
// Does the same with a file's bytes in memory, whose kind its name says; for tests and fuzzing.
void read_ids(const IdFileOptions& options, std::span<const std::byte> bytes, const VisitIds& visit);

}  // namespace herd
