// Writes a checkpoint, without libtorch: each rank writes its shard, then one rank the manifest.
//   1. one rank   folder = new_checkpoint_folder(root, step)
//   2. each rank  entry = write_shard(folder, rank, pieces); the shard is durable when it returns
//   3. one rank   when all entries are there: commit_checkpoint(folder, manifest, entries);
//                 then keep_newest(root, keep), of checkpoint_folder.h
// A stop at any point leaves earlier checkpoints intact.
// Throws kStorage (disk full: file, bytes needed, bytes free) and kBadConfig (pieces that don't fit together).
// Threads: write_shard() of different ranks at once; all else one at a time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "herd/base/ids.h"
#include "herd/storage/manifest.h"

namespace herd {

struct TensorPiece {
  std::string name;  // global name
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // global shape
  TensorSlice slice;           // the slice that `bytes` hold
  std::span<const std::byte> bytes;
};

// Makes root/step-00000100, or step-00000100-2, -3, .. where a whole checkpoint of that step exists already, or
// something that is no folder.
std::filesystem::path new_checkpoint_folder(const std::filesystem::path& root, int64_t step,
                                            FileSystem& files = FileSystem::system());

// Writes shard-<rank>.safetensors, and returns what the manifest must say of it. Whole tensors keep their name and
// shape in the file, and `notes` are its metadata. Without pieces it writes no file.
Manifest write_shard(const std::filesystem::path& folder, Rank rank, const std::vector<TensorPiece>& pieces,
                     FileSystem& files = FileSystem::system(), const std::map<std::string, std::string>& notes = {});

// Merges the ranks' shard entries into `manifest` (which holds step, samples, run file and notes), checks that every
// tensor is whole and writes it.
void commit_checkpoint(const std::filesystem::path& folder, Manifest manifest, const std::vector<Manifest>& entries,
                       FileSystem& files = FileSystem::system());

}  // namespace herd
