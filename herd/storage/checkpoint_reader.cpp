#include "herd/storage/checkpoint_reader.h"

#include <cstring>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/storage/checksum.h"
#include "herd/storage/strict_json_internal.h"

namespace herd {
namespace {

constexpr char kFix[] = "resume from an older checkpoint; this one can't be trusted";

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

std::span<const std::byte> CheckpointReader::checked_bytes(const CheckpointTensor& tensor,
                                                           const CheckpointPiece& piece) {
  const auto& file = shard(piece.file);
  const std::string path = file.path().string();
  const auto* entry = file.find(piece.entry);
  if (entry == nullptr) throw_corrupt(path, 8, "the manifest's tensor \"" + piece.entry + "\" is not in it", kFix);
  const auto bytes = file.bytes(*entry);
  const auto expected = static_cast<size_t>(piece.slice.elements.size() * size_of(tensor.dtype));
  if (entry->type != tensor_type_of(tensor.dtype) || bytes.size() != expected) {
    throw_corrupt(path, file.offset(*entry),
                  "tensor \"" + piece.entry + "\" is " + entry->type + " of " + std::to_string(bytes.size()) +
                      " bytes, the manifest states " + std::string(tensor_type_of(tensor.dtype)) + " of " +
                      std::to_string(expected),
                  kFix);
  }
  if (checked_.insert(&piece).second && crc32c(bytes) != piece.checksum) {
    checked_.erase(&piece);
    throw_corrupt(path, file.offset(*entry),
                  "the checksum of tensor \"" + piece.entry + "\" is " + format_crc32c(piece.checksum) +
                      ", its bytes give " + format_crc32c(crc32c(bytes)),
                  kFix);
  }
  return bytes;
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
    std::span<const std::byte> bytes;
    for_each_common_run(piece.slice, slice, [&](int64_t from, int64_t to, int64_t count) {
      if (bytes.empty()) bytes = checked_bytes(tensor, piece);
      std::memcpy(out.data() + to * width, bytes.data() + from * width, static_cast<size_t>(count * width));
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
      done += static_cast<int64_t>(checked_bytes(tensor, piece).size());
      if (progress) progress(done, all);
    }
  }
}

}  // namespace herd
