// Reads any slice of any tensor of a checkpoint, from whichever shards hold it. So a checkpoint does not depend on the
// layout that wrote it. Opening parses the manifest and checks that every shard is there with its length. The reader
// checks a piece against its checksum before it uses the first byte. Throws kCorruptFile with file, byte and rule;
// kStorage if a file is missing, or if its drive fails to read it, with file and byte. It follows no link below the
// folder, whose own path may be one. Threads: one at a time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "herd/storage/manifest.h"
#include "herd/storage/safetensors.h"

namespace herd {

class CheckpointReader {
 public:
  explicit CheckpointReader(std::filesystem::path folder);
  const Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& folder() const { return folder_; }
  // Reads `slice` of the tensor. REQUIRES out.size() == slice.elements.size() * bytes of an element.
  // Throws kBadConfig if there is no such tensor or the slice leaves it.
  void read(const std::string& tensor, const TensorSlice& slice, std::span<std::byte> out);
  // Checks the checksums of all pieces. It calls `progress`, if any, after each piece with the bytes done and all
  // bytes.
  void verify(const std::function<void(int64_t done, int64_t all)>& progress = {});

 private:
  // Returns what reads a piece, once its checksum is known to be right.
  TensorReader checked_piece(const CheckpointTensor& tensor, const CheckpointPiece& piece);
  const SafetensorsFile& shard(const std::string& name);

  std::filesystem::path folder_;
  FileSystem files_;  // of the folder
  Manifest manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> shards_;
  std::set<const CheckpointPiece*> checked_;
};

}  // namespace herd
