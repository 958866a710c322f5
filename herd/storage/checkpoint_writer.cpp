#include "herd/storage/checkpoint_writer.h"

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/shard_writer.h"
#include "herd/storage/temporary_name.h"

namespace herd {

std::filesystem::path new_checkpoint_folder(const std::filesystem::path& root, int64_t step, FileSystem& files) {
  make_folders(root, files);
  for (int attempt = 1;; ++attempt) {
    const auto folder = root / checkpoint_folder_name(step, attempt);
    const bool is_free = !is_taken(folder, files);
    if (!is_free && (!is_folder(folder, files) || is_taken(folder / kManifestName, files))) continue;
    make_folders(folder, files);
    remove_stale_temporaries(folder, files);
    return folder;
  }
}

Manifest write_shard(const std::filesystem::path& folder, Rank rank, const std::vector<TensorPiece>& pieces,
                     FileSystem& files, const std::map<std::string, std::string>& notes) {
  if (pieces.empty()) return {};
  std::vector<ShardPiece> shard_pieces;
  for (const auto& piece : pieces) {
    shard_pieces.push_back({piece.name, piece.dtype, piece.shape, piece.slice});
    HERD_CHECK_EQ(static_cast<int64_t>(piece.bytes.size()), shard_pieces.back().bytes());
  }
  ShardWriter shard(folder, rank, std::move(shard_pieces), files, notes);
  for (const size_t index : shard.order()) shard.append(pieces[index].bytes);
  return shard.commit();
}

void commit_checkpoint(const std::filesystem::path& folder, Manifest manifest, const std::vector<Manifest>& entries,
                       FileSystem& files) {
  for (const auto& entry : entries) merge_manifest(manifest, entry);
  for (const auto& [name, tensor] : manifest.tensors) {
    std::vector<TensorSlice> slices;
    for (const auto& piece : tensor.pieces) slices.push_back(piece.slice);
    if (auto fault = find_cover_fault(slices, tensor.shape); !fault.empty()) {
      throw Error(Code::kBadConfig, "tensor \"" + name + "\" can't be saved: " + fault +
                                        "\n  fix: every element is saved by exactly one rank");
    }
  }
  for (const auto& path : entries_of(folder, files)) {  // shards of an attempt that was cut short
    const bool is_shard = path.extension() == ".safetensors";
    if (is_shard && !manifest.files.contains(path.filename().string())) files.remove(path);
  }
  remove_stale_temporaries(folder, files);  // also of processes that still lived when this save began
  write_manifest(folder, manifest, files);
}

}  // namespace herd
