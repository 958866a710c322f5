// Reads and writes a sequence of token ids on disk (docs/formats/tokens.md): 64 bytes of header, then ids of 2 bytes
// (vocabulary <= 65536) or 4 bytes, little-endian. Opening checks name, version, header checksum and length, in
// constant time. read() checks the ids that it returns; verify() reads everything. All throw kCorruptFile naming file,
// byte offset and rule, also where the file was cut or written again in its place since it was opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "herd/storage/atomic_file.h"
#include "herd/storage/readable_file.h"

namespace herd {

// Threads: any.
class TokenFile {
 public:
  explicit TokenFile(std::filesystem::path path);
  int64_t count() const { return count_; }            // tokens
  int64_t vocabulary() const { return vocabulary_; }  // every id is in [0, vocabulary)
  uint32_t checksum() const { return checksum_; }     // of all ids' bytes, as the header states it
  const std::filesystem::path& path() const { return file_.path(); }
  // Reads tokens [begin, begin + out.size()). REQUIRES that they lie in [0, count()).
  void read(int64_t begin, std::span<int64_t> out) const;
  void verify() const;  // reads the whole file and checks the checksum and every id
  // Throws kBadConfig if a model with this many embeddings can't hold every id of the file.
  void require_vocabulary(int64_t model_vocabulary) const;

 private:
  [[noreturn]] void corrupt(int64_t offset, const std::string& rule) const;
  void require_unchanged() const;
  void read_bytes(int64_t offset, std::span<std::byte> out) const;
  int64_t id_from(const std::byte* at, int64_t index) const;  // token `index`, whose bytes are there

  ReadableFile file_;
  int64_t count_ = 0, vocabulary_ = 0, id_bytes_ = 0;
  uint32_t checksum_ = 0, header_checksum_ = 0;
};

// Writes a token file: call append() any number of times, then commit(). The file is atomic as AtomicFile. Throws
// kBadConfig for an id outside [0, vocabulary), kStorage if the disk is full.
class TokenFileWriter {
 public:
  TokenFileWriter(std::filesystem::path path, int64_t vocabulary);
  void append(std::span<const int> ids);
  void commit();
  int64_t count() const { return count_; }
  uint32_t checksum() const { return checksum_; }  // of the ids so far

 private:
  AtomicFile file_;
  int64_t vocabulary_ = 0, count_ = 0;
  uint32_t checksum_ = 0;
};

}  // namespace herd
