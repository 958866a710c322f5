// Writes one shard of a checkpoint as a stream, so that memory holds no more than a buffer of it.
//
//   ShardWriter shard(folder, rank, pieces);                                        // what it will hold
//   for (const size_t index : shard.order()) shard.append(bytes of pieces[index]);  // in any portions
//   Manifest part = shard.commit();                                                 // durable; what the manifest says
//
// Whole tensors keep their name and shape in the file; docs/formats/safetensors.md has the names of parts.
// Throws kBadConfig for a slice outside its tensor, kStorage as AtomicFile. Threads: one at a time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "herd/base/ids.h"
#include "herd/storage/manifest.h"
#include "herd/storage/safetensors.h"

namespace herd {

struct ShardPiece {
  std::string name;  // global name
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // global shape
  TensorSlice slice;           // the part of the tensor that this rank has
  int64_t bytes() const;
};

class ShardWriter {
 public:
  // REQUIRES at least one piece. `notes` become the file's metadata.
  ShardWriter(const std::filesystem::path& folder, Rank rank, std::vector<ShardPiece> pieces,
              FileSystem& files = FileSystem::system(), const std::map<std::string, std::string>& notes = {});
  const std::vector<size_t>& order() const { return order_; }  // order of the pieces in the file, wider elements first
  void append(std::span<const std::byte> bytes);
  Manifest commit();

 private:
  std::string file_name_;
  std::vector<ShardPiece> pieces_;
  std::vector<std::string> entries_;  // names in the file, one for each piece
  std::vector<size_t> order_;
  std::vector<uint32_t> checksums_;
  SafetensorsWriter writer_;
  size_t current_ = 0;    // place in order_ of the piece that the next byte belongs to
  int64_t appended_ = 0;  // bytes appended of it
};

}  // namespace herd
