#include "herd/storage/checkpoint_reader.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/storage/checksum.h"
#include "herd/storage/strict_json_internal.h"

namespace herd {
namespace {

constexpr char kFix[] = "resume from an older checkpoint; this one can't be trusted";

uint32_t checksum_of(const SafetensorsFile& file, const TensorEntry& entry) {
  constexpr int64_t kBytesAtOnce = 1 << 20;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kBytesAtOnce, entry.size())));
  uint32_t checksum = crc32c(std::string_view());
  for (int64_t done = 0; done < entry.size(); done += kBytesAtOnce) {
    const auto part = std::span(buffer).first(static_cast<size_t>(std::min(kBytesAtOnce, entry.size() - done)));
    file.read(entry, done, part);
    checksum = crc32c(part, checksum);
  }
  return checksum;
}

}  // namespace

CheckpointReader::CheckpointReader(std::filesystem::path folder)
    : folder_(std::move(folder)), files_(folder_), manifest_(read_manifest(folder_)) {
  for (const auto& [name, bytes] : manifest_.files) {
    struct stat info {};
    if (const int refusal = files_.stat(folder_ / name, info); refusal < 0) {
      throw Error(Code::kStorage, (folder_ / name).string() + ", which the manifest lists: " +
                                      std::generic_category().message(-refusal) + "\n  fix: " + kFix);
    }
    if (!S_ISREG(info.st_mode)) {
      throw_corrupt((folder_ / name).string(), 0,
                    S_ISLNK(info.st_mode) ? "it is a link, and none is followed below a checkpoint's folder"
                                          : "it is no file, but the manifest lists it",
                    kFix);
    }
    if (info.st_size != bytes) {
      throw_corrupt(
          (folder_ / name).string(), info.st_size,
          "the file has " + std::to_string(info.st_size) + " bytes, the manifest states " + std::to_string(bytes),
          kFix);
    }
  }
}

const SafetensorsFile& CheckpointReader::shard(const std::string& name) {
  auto& file = shards_[name];
  if (!file) file = std::make_unique<SafetensorsFile>(folder_ / name, files_);
  return *file;
}

TensorReader CheckpointReader::checked_piece(const CheckpointTensor& tensor, const CheckpointPiece& piece) {
  const auto& file = shard(piece.file);
  const std::string path = file.path().string();
  const auto* entry = file.find(piece.entry);
  if (entry == nullptr) throw_corrupt(path, 8, "the manifest's tensor \"" + piece.entry + "\" is not in it", kFix);
  const int64_t expected = piece.slice.elements.size() * size_of(tensor.dtype);
  if (entry->type != tensor_type_of(tensor.dtype) || entry->size() != expected) {
    throw_corrupt(path, file.offset(*entry),
                  "tensor \"" + piece.entry + "\" is " + entry->type + " of " + std::to_string(entry->size()) +
                      " bytes, the manifest states " + std::string(tensor_type_of(tensor.dtype)) + " of " +
                      std::to_string(expected),
                  kFix);
  }
  if (checked_.contains(&piece)) return {file, *entry};
  if (const uint32_t checksum = checksum_of(file, *entry); checksum != piece.checksum) {
    throw_corrupt(path, file.offset(*entry),
                  "the checksum of tensor \"" + piece.entry + "\" is " + format_crc32c(piece.checksum) +
                      ", its bytes give " + format_crc32c(checksum),
                  kFix);
  }
  checked_.insert(&piece);
  return {file, *entry};
}

void CheckpointReader::read(const std::string& name, const TensorSlice& slice, std::span<std::byte> out) {
  const auto found = manifest_.tensors.find(name);
  if (found == manifest_.tensors.end()) {
    throw Error(Code::kBadConfig, "the checkpoint " + folder_.string() + " holds no tensor \"" + name + "\"");
  }
  const CheckpointTensor& tensor = found->second;
  if (const auto fault = find_fault(slice, tensor.shape); !fault.empty()) {
    throw Error(Code::kBadConfig, "tensor \"" + name + "\" of " + folder_.string() + ": " + fault);
  }
  const int64_t width = size_of(tensor.dtype);
  HERD_CHECK_EQ(static_cast<int64_t>(out.size()), slice.elements.size() * width);
  int64_t copied = 0;
  for (const auto& piece : tensor.pieces) {
    std::optional<TensorReader> bytes;
    for_each_common_run(piece.slice, slice, [&](int64_t from, int64_t to, int64_t count) {
      if (!bytes) bytes.emplace(checked_piece(tensor, piece));
      bytes->read(from * width, out.subspan(static_cast<size_t>(to * width), static_cast<size_t>(count * width)));
      copied += count;
    });
  }
  HERD_CHECK_EQ(copied, slice.elements.size());
}

void CheckpointReader::verify(const std::function<void(int64_t done, int64_t all)>& progress) {
  int64_t done = 0, all = 0;
  for (const auto& [name, bytes] : manifest_.files) all += bytes;
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const auto& piece : tensor.pieces) {
      checked_piece(tensor, piece);
      done += piece.slice.elements.size() * size_of(tensor.dtype);
      if (progress) progress(done, all);
    }
  }
}

}  // namespace herd
