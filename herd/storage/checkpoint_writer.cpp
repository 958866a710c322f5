#include "herd/storage/checkpoint_writer.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/checksum.h"
#include "herd/storage/safetensors.h"

namespace herd {
namespace {

// "w" for a whole tensor, "w[0:4,8:16]" for a box, "w#10:20" for a range of elements, or both.
std::string entry_name(const TensorPiece& piece) {
  const TensorSlice whole = whole_tensor(piece.shape);
  std::string name = piece.name;
  if (piece.slice.box != whole.box) {
    std::string box;
    for (const auto& range : piece.slice.box) {
      box += (box.empty() ? "" : ",") + std::to_string(range.begin) + ":" + std::to_string(range.end);
    }
    name += "[" + box + "]";
  }
  const auto& elements = piece.slice.elements;
  if (elements != IndexRange{0, box_elements(piece.slice)}) {
    name += "#" + std::to_string(elements.begin) + ":" + std::to_string(elements.end);
  }
  return name;
}

// The shape of a piece in its file: its box if it is all of it, else one dimension.
std::vector<int64_t> entry_shape(const TensorSlice& slice) {
  if (slice.elements != IndexRange{0, box_elements(slice)}) return {slice.elements.size()};
  std::vector<int64_t> shape;
  for (const auto& range : slice.box) shape.push_back(range.size());
  return shape;
}

void check_piece(const TensorPiece& piece) {
  if (auto fault = find_fault(piece.slice, piece.shape); !fault.empty()) {
    throw Error(Code::kBadConfig, "tensor \"" + piece.name + "\": " + fault);
  }
  HERD_CHECK_EQ(static_cast<int64_t>(piece.bytes.size()), piece.slice.elements.size() * size_of(piece.dtype));
}

}  // namespace

std::filesystem::path new_checkpoint_folder(const std::filesystem::path& root, int64_t step, FileSystem& files) {
  make_folders(root, files);
  for (int attempt = 1;; ++attempt) {
    const auto folder = root / checkpoint_folder_name(step, attempt);
    if (std::filesystem::exists(folder / kManifestName)) continue;
    make_folders(folder, files);
    remove_stale_temporaries(folder, files);
    return folder;
  }
}

Manifest write_shard(const std::filesystem::path& folder, Rank rank, const std::vector<TensorPiece>& pieces,
                     FileSystem& files) {
  Manifest part;
  if (pieces.empty()) return part;
  char file_name[64];
  std::snprintf(file_name, sizeof file_name, "shard-%05d.safetensors", rank);
  std::vector<TensorEntry> entries;
  std::map<std::string, const TensorPiece*> by_entry;
  for (const auto& piece : pieces) {
    check_piece(piece);
    const std::string entry = entry_name(piece);
    entries.push_back({entry, std::string(tensor_type_of(piece.dtype)), entry_shape(piece.slice)});
    by_entry[entry] = &piece;
    Manifest single;
    single.tensors[piece.name] = {piece.dtype, piece.shape, {{piece.slice, file_name, entry, crc32c(piece.bytes)}}};
    merge_manifest(part, single);
  }
  SafetensorsWriter writer(folder / file_name, std::move(entries), {{"format", "pt"}}, files);
  for (const auto& entry : writer.entries()) writer.append(by_entry.at(entry.name)->bytes);
  writer.commit();
  part.files[file_name] = writer.size();
  return part;
}

void commit_checkpoint(const std::filesystem::path& folder, Manifest manifest, const std::vector<Manifest>& parts,
                       FileSystem& files) {
  for (const auto& part : parts) merge_manifest(manifest, part);
  for (const auto& [name, tensor] : manifest.tensors) {
    std::vector<TensorSlice> slices;
    for (const auto& piece : tensor.pieces) slices.push_back(piece.slice);
    if (auto fault = find_cover_fault(slices, tensor.shape); !fault.empty()) {
      throw Error(Code::kBadConfig, "tensor \"" + name + "\" can't be saved: " + fault +
                                        "\n  fix: every element is saved by exactly one rank");
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {  // shards of an attempt that was cut short
    if (!manifest.files.contains(entry.path().filename().string())) files.remove(entry.path());
  }
  write_manifest(folder, manifest, files);
}

}  // namespace herd
