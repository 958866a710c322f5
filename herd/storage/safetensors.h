// Reads and writes files of named tensors in the safetensors format (docs/formats/safetensors.md): 8 bytes of header
// length, a JSON header, then the tensors' bytes without gaps. Every program that reads the format opens herd's files,
// and herd reads theirs. The reader checks every rule of the format when it opens a file, before any tensor is touched.
// A broken rule throws kCorruptFile with file, byte and rule. Source: the format's published specification.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "herd/storage/atomic_file.h"
#include "herd/storage/readable_file.h"
#include "herd/storage/tensor_type.h"

namespace herd {

struct TensorEntry {
  std::string name;
  std::string type;            // "F32"; herd/storage/tensor_type.h
  std::vector<int64_t> shape;  // empty = one element
  int64_t begin = 0, end = 0;  // bytes [begin, end) after the header; the writer sets them
  int64_t size() const { return end - begin; }
};

// Reads a file as its tensors are asked for. Threads: any.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path, const FileSystem& files = FileSystem::system());
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorEntry* find(std::string_view name) const;  // returns nullptr if no tensor has the name
  // Reads the tensor's bytes [begin, begin + out.size()). REQUIRES that it has them. Throws kStorage, naming file and
  // byte, where the drive fails, and kCorruptFile where the file was cut since it was opened.
  void read(const TensorEntry& tensor, int64_t begin, std::span<std::byte> out) const;
  // Returns the offset of the tensor's first byte in the file.
  int64_t offset(const TensorEntry& tensor) const { return data_begin_ + tensor.begin; }
  int64_t size() const { return file_.size(); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void read_at(int64_t offset, std::span<std::byte> out) const;

  ReadableFile file_;
  int64_t data_begin_ = 0;
  std::vector<TensorEntry> tensors_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

// Copies parts of one tensor out of its file: small ones by way of a window, so that many in ascending order take few
// calls of the system. Borrows both. Throws as SafetensorsFile::read(). Threads: one at a time.
class TensorReader {
 public:
  TensorReader(const SafetensorsFile& file, const TensorEntry& tensor) : file_(file), tensor_(tensor) {}
  void read(int64_t begin, std::span<std::byte> out);  // the tensor's bytes [begin, begin + out.size())

 private:
  const SafetensorsFile& file_;
  const TensorEntry& tensor_;
  std::vector<std::byte> window_;
  int64_t window_begin_ = 0;
};

// Parses a whole file in memory as SafetensorsFile does, for tests and fuzzing. Returns where the data begins, in
// bytes.
int64_t parse_safetensors(std::span<const std::byte> file, const std::string& name, std::vector<TensorEntry>& tensors,
                          std::map<std::string, std::string>& metadata);

// Streams a file: the caller states the tensors first, then appends their bytes in the order of entries(), in any
// pieces. Wider types come first, so that every tensor is aligned to its element. The file appears whole or not at all,
// as by AtomicFile. Throws kBadConfig for two tensors of one name, an unknown type or a shape whose bits are no whole
// bytes. Threads: one at a time.
class SafetensorsWriter {
 public:
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorEntry> tensors,
                    const std::map<std::string, std::string>& metadata = {}, FileSystem& files = FileSystem::system());
  const std::vector<TensorEntry>& entries() const { return tensors_; }
  void append(std::span<const std::byte> bytes);
  void commit();  // REQUIRES that all bytes were appended
  int64_t size() const { return file_.size(); }

 private:
  AtomicFile file_;
  std::vector<TensorEntry> tensors_;
  int64_t total_ = 0;  // bytes of the finished file
};

}  // namespace herd
