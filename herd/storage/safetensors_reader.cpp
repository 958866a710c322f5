#include <algorithm>
#include <cstring>

#include "herd/base/check.h"
#include "herd/storage/safetensors.h"
#include "herd/storage/strict_json_internal.h"

namespace herd {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr int kHeaderDepth = 3;  // header > tensor > shape
constexpr char kSafetensorsFix[] = "take another copy of the file";

// Parses one tensor's description; `file` and `offset` are for messages.
class EntryParser {
 public:
  EntryParser(const std::string& file, uint64_t data_bytes) : file_(file), data_bytes_(data_bytes) {}

  TensorEntry parse(const std::string& name, const nlohmann::json& value) const {
    const std::string what = "tensor \"" + name + "\": ";
    if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      corrupt(what + "it must have dtype, shape and data_offsets, and nothing else");
    }
    TensorEntry entry;
    entry.name = name;
    if (!value["dtype"].is_string()) corrupt(what + "dtype must be text");
    entry.type = value["dtype"].get<std::string>();
    const auto type = find_tensor_type(entry.type);
    if (!type) corrupt(what + "unknown dtype \"" + entry.type + "\"");
    for (const uint64_t size : numbers(value["shape"], what + "shape"))
      entry.shape.push_back(static_cast<int64_t>(size));
    const auto offsets = numbers(value["data_offsets"], what + "data_offsets");
    if (offsets.size() != 2 || offsets[0] > offsets[1])
      corrupt(what + "data_offsets must be [begin, end], begin <= end");
    if (offsets[1] > data_bytes_) {
      corrupt(what + "it ends at byte " + std::to_string(offsets[1]) + " of the data, which has " +
              std::to_string(data_bytes_));
    }
    entry.begin = static_cast<int64_t>(offsets[0]);
    entry.end = static_cast<int64_t>(offsets[1]);
    const auto count = num_elements(entry.shape);
    if (!count || *count > (int64_t{1} << 62) / type->bits) corrupt(what + "its shape has too many elements");
    const int64_t bits = *count * type->bits;
    if (bits % 8 != 0 || bits / 8 != entry.end - entry.begin) {
      corrupt(what + "shape and dtype take " + std::to_string(bits) + " bits, data_offsets hold " +
              std::to_string(entry.end - entry.begin) + " bytes");
    }
    return entry;
  }

 private:
  [[noreturn]] void corrupt(const std::string& rule) const {
    throw_corrupt(file_, kLengthBytes, rule, kSafetensorsFix);
  }

  std::vector<uint64_t> numbers(const nlohmann::json& value, const std::string& what) const {
    std::vector<uint64_t> result;
    if (!value.is_array()) corrupt(what + " must be a list");
    for (const auto& item : value) {
      if (!item.is_number_unsigned() || item.get<uint64_t>() > (uint64_t{1} << 62)) {
        corrupt(what + " must hold whole numbers from 0 to 2^62");
      }
      result.push_back(item.get<uint64_t>());
    }
    return result;
  }

  const std::string& file_;
  uint64_t data_bytes_;
};

void check_no_gaps(const std::vector<TensorEntry>& tensors, const std::string& file, int64_t data_begin,
                   int64_t data_bytes) {
  int64_t end = 0;
  for (const auto& tensor : tensors) {
    if (tensor.begin != end) {
      throw_corrupt(file, data_begin + end,
                    "tensors must follow each other: the last one ends at byte " + std::to_string(end) +
                        " of the data, \"" + tensor.name + "\" begins at " + std::to_string(tensor.begin),
                    kSafetensorsFix);
    }
    end = tensor.end;
  }
  if (end != data_bytes) {
    throw_corrupt(file, data_begin + end,
                  "the tensors take " + std::to_string(end) + " bytes, the file holds " + std::to_string(data_bytes) +
                      " after its header",
                  kSafetensorsFix);
  }
}

// Returns the bytes of the header, of a file that has so many and begins with `begin`.
int64_t header_bytes(std::span<const std::byte> begin, int64_t file_bytes, const std::string& name) {
  if (begin.size() < kLengthBytes) {
    throw_corrupt(name, 0, "a safetensors file has at least 8 bytes, this one " + std::to_string(file_bytes),
                  kSafetensorsFix);
  }
  uint64_t length;
  std::memcpy(&length, begin.data(), sizeof length);
  const auto rest = static_cast<uint64_t>(file_bytes - kLengthBytes);
  if (length > kMaxHeaderBytes || length > rest) {
    throw_corrupt(name, 0,
                  "a header of " + std::to_string(length) + " bytes, but " + std::to_string(rest) +
                      " bytes follow and at most 100000000 are allowed",
                  kSafetensorsFix);
  }
  return static_cast<int64_t>(length);
}

// Parses the header, which `data_bytes` follow.
void parse_header(std::string_view text, int64_t data_bytes, const std::string& name, std::vector<TensorEntry>& tensors,
                  std::map<std::string, std::string>& metadata) {
  if (text.empty() || text[0] != '{')
    throw_corrupt(name, kLengthBytes, "the header must begin with {", kSafetensorsFix);
  const auto header = parse_strict_json(text, kHeaderDepth, name, kLengthBytes, kSafetensorsFix);
  const EntryParser parser(name, static_cast<uint64_t>(data_bytes));
  for (const auto& [key, value] : header.items()) {
    if (key != "__metadata__") {
      tensors.push_back(parser.parse(key, value));
      continue;
    }
    if (!value.is_object()) throw_corrupt(name, kLengthBytes, "__metadata__ must map text to text", kSafetensorsFix);
    for (const auto& [note, note_value] : value.items()) {
      if (!note_value.is_string())
        throw_corrupt(name, kLengthBytes, "__metadata__ must map text to text", kSafetensorsFix);
      metadata[note] = note_value.get<std::string>();
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_no_gaps(tensors, name, kLengthBytes + static_cast<int64_t>(text.size()), data_bytes);
}

}  // namespace

int64_t parse_safetensors(std::span<const std::byte> file, const std::string& name, std::vector<TensorEntry>& tensors,
                          std::map<std::string, std::string>& metadata) {
  const auto size = static_cast<int64_t>(file.size());
  const int64_t length = header_bytes(file, size, name), data_begin = kLengthBytes + length;
  parse_header({reinterpret_cast<const char*>(file.data()) + kLengthBytes, static_cast<size_t>(length)},
               size - data_begin, name, tensors, metadata);
  return data_begin;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path, const FileSystem& files) : file_(std::move(path), files) {
  const std::string name = file_.path().string();
  std::vector<std::byte> begin(static_cast<size_t>(std::min(file_.size(), kLengthBytes)));
  read_at(0, begin);
  std::string header(static_cast<size_t>(header_bytes(begin, file_.size(), name)), '\0');
  read_at(kLengthBytes, std::as_writable_bytes(std::span(header)));
  data_begin_ = kLengthBytes + static_cast<int64_t>(header.size());
  parse_header(header, file_.size() - data_begin_, name, tensors_, metadata_);
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_[tensors_[i].name] = i;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::read_at(int64_t offset, std::span<std::byte> out) const {
  const int64_t got = file_.read_at(offset, out);
  if (got == static_cast<int64_t>(out.size())) return;
  throw_corrupt(file_.path().string(), offset + got,
                "there is nothing, but the file had " + std::to_string(file_.size()) +
                    " bytes when it was opened: it was cut while it was read",
                kSafetensorsFix);
}

void SafetensorsFile::read(const TensorEntry& tensor, int64_t begin, std::span<std::byte> out) const {
  HERD_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= tensor.size(),
             "bytes [" + std::to_string(begin) + ", " + std::to_string(begin + static_cast<int64_t>(out.size())) +
                 ") of " + tensor.name);
  read_at(offset(tensor) + begin, out);
}

void TensorReader::read(int64_t begin, std::span<std::byte> out) {
  constexpr int64_t kWindow = 1 << 20;
  const auto size = static_cast<int64_t>(out.size());
  if (size >= kWindow) return file_.read(tensor_, begin, out);
  if (begin < window_begin_ || begin + size > window_begin_ + static_cast<int64_t>(window_.size())) {
    window_.resize(static_cast<size_t>(std::min(kWindow, tensor_.size() - begin)));
    window_begin_ = begin;
    file_.read(tensor_, begin, window_);
  }
  std::memcpy(out.data(), window_.data() + (begin - window_begin_), out.size());
}

}  // namespace herd
