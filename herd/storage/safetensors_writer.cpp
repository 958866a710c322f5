#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/storage/safetensors.h"

namespace herd {
namespace {

constexpr size_t kAlignment = 64;  // bytes; spaces fill the header up to where the first tensor begins

// Sorts the tensors and gives each its place; returns the bytes of all.
int64_t lay_out(std::vector<TensorEntry>& tensors) {
  std::set<std::string> names;
  const auto bits_of = [](const TensorEntry& tensor) {
    const auto type = find_tensor_type(tensor.type);
    if (!type) throw Error(Code::kBadConfig, "tensor \"" + tensor.name + "\": unknown type \"" + tensor.type + "\"");
    return type->bits;
  };
  for (const auto& tensor : tensors) {
    bits_of(tensor);
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      throw Error(Code::kBadConfig, "two tensors of a file can't both be named \"" + tensor.name + "\"");
    }
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](const TensorEntry& a, const TensorEntry& b) { return bits_of(a) > bits_of(b); });
  int64_t at = 0;
  for (auto& tensor : tensors) {
    const auto count = num_elements(tensor.shape);
    const int bits = bits_of(tensor);
    if (!count || *count > (int64_t{1} << 62) / bits || *count * bits % 8 != 0) {
      throw Error(Code::kBadConfig, "tensor \"" + tensor.name + "\" of type " + tensor.type +
                                        ": its shape is negative, too large or no whole number of bytes");
    }
    tensor.begin = at;
    at += *count * bits / 8;
    tensor.end = at;
  }
  return at;
}

std::string header_text(const std::vector<TensorEntry>& tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const auto& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + kAlignment - 1) / kAlignment * kAlignment - 8, ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path, std::vector<TensorEntry> tensors,
                                     const std::map<std::string, std::string>& metadata, FileSystem& files)
    : file_(std::move(path), files), tensors_(std::move(tensors)) {
  const int64_t data_bytes = lay_out(tensors_);
  const std::string header = header_text(tensors_, metadata);
  const uint64_t length = header.size();
  total_ = 8 + static_cast<int64_t>(length) + data_bytes;
  file_.reserve(total_);
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  HERD_CHECK_LE(file_.size() + static_cast<int64_t>(bytes.size()), total_);
  file_.write(bytes);
}

void SafetensorsWriter::commit() {
  HERD_CHECK_EQ(file_.size(), total_);
  file_.commit();
}

}  // namespace herd
