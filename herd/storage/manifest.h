// Defines what a checkpoint holds: manifest.json beside its shards (docs/formats/manifest.md). Tensors are keyed by
// global name and index range, not by layout, so any number of ranks reads what any other number wrote. The manifest is
// renamed into place last, when every shard is durable; a folder without one is no checkpoint.
// Threads: plain data, pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "herd/base/dtype.h"
#include "herd/storage/file_system.h"
#include "herd/storage/tensor_slice.h"

namespace herd {

inline constexpr char kManifestName[] = "manifest.json";

struct CheckpointPiece {
  TensorSlice slice;
  std::string file;       // name of a shard in the same folder
  std::string entry;      // name of the tensor in that file
  uint32_t checksum = 0;  // CRC-32C of the piece's bytes
};

struct CheckpointTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // global shape
  std::vector<CheckpointPiece> pieces;
};

struct Manifest {
  std::string herd_version = {};
  int64_t step = 0;                               // optimizer steps done
  int64_t samples = 0;                            // global samples consumed, which is the position in the data
  std::string config = {};                        // the run file, resolved
  std::map<std::string, std::string> notes = {};  // other facts to keep: algorithms, topology, threads
  std::map<std::string, CheckpointTensor> tensors = {};
  std::map<std::string, int64_t> files = {};  // bytes of each shard
};

std::string format_manifest(const Manifest& manifest);  // writes a line for each tensor

// Throws kCorruptFile with `file`, byte and rule. The text must be JSON of this format and version, with the right
// checksum and members. Shard names must stay in the folder, and pieces in their tensor and in a listed file. No
// element may be held twice, nor (unless `partial`) left out.
Manifest parse_manifest(std::string_view text, const std::string& file, bool partial = false);

// Adds the tensors and files of one rank's part. Throws kBadConfig if two ranks state different dtypes or shapes for
// one tensor, or both hold the same elements.
void merge_manifest(Manifest& whole, const Manifest& part);

// Throws kStorage if there is none. Follows no link below the folder.
Manifest read_manifest(const std::filesystem::path& folder);
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest,
                    FileSystem& files = FileSystem::system());

}  // namespace herd
