#include <charconv>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/storage/manifest.h"
#include "herd/storage/manifest_parser_internal.h"
#include "herd/storage/run_id.h"
#include "herd/storage/strict_json_internal.h"
#include "herd/storage/tensor_type.h"

namespace herd {
namespace {

using Json = nlohmann::json;

constexpr int kManifestDepth = 8;  // manifest > tensors > tensor > pieces > piece > box > range
constexpr int64_t kMaxNumber = int64_t{1} << 60;
constexpr char kManifestFix[] = "resume from an older checkpoint; this one can't be trusted";

// Reads members of the manifest's JSON, or throws kCorruptFile. `owner` names an object in messages, as in: tensor "w".
class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  [[noreturn]] void corrupt(const std::string& rule) const { throw_corrupt(file_, 0, rule, kManifestFix); }

  const Json& member(const Json& object, const char* name, const std::string& owner) const {
    if (!object.is_object() || !object.contains(name)) corrupt(owner + " must have the member \"" + name + "\"");
    return object[name];
  }

  std::string text(const Json& object, const char* name, const std::string& owner) const {
    const Json& value = member(object, name, owner);
    if (!value.is_string()) corrupt("\"" + std::string(name) + "\" of " + owner + " must be text");
    return value.get<std::string>();
  }

  int64_t whole_number(const Json& value, const std::string& what) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(kMaxNumber)) {
      corrupt(what + " must be a whole number from 0 to 2^60");
    }
    return value.get<int64_t>();
  }

  IndexRange range(const Json& value, const std::string& what) const {
    if (!value.is_array() || value.size() != 2) corrupt(what + " must be [begin, end]");
    return {whole_number(value[0], what), whole_number(value[1], what)};
  }

  uint32_t checksum(const Json& object, const std::string& owner) const {
    const std::string digits = text(object, "crc32c", owner);
    uint32_t value = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 8 || status != std::errc() || end != digits.data() + 8) {
      corrupt("\"crc32c\" of " + owner + " must be 8 hexadecimal digits");
    }
    return value;
  }

  CheckpointPiece piece(const Json& json, const std::vector<int64_t>& shape, const std::string& owner) const {
    CheckpointPiece piece;
    piece.slice = whole_slice(shape);
    piece.slice.elements = range(member(json, "elements", owner), "\"elements\" of " + owner);
    if (json.contains("box")) {
      if (!json["box"].is_array()) corrupt("\"box\" of " + owner + " must be a list");
      piece.slice.box.clear();
      for (const auto& item : json["box"]) piece.slice.box.push_back(range(item, "\"box\" of " + owner));
    }
    piece.file = text(json, "file", owner);
    piece.entry = text(json, "entry", owner);
    piece.checksum = checksum(json, owner);
    return piece;
  }

  CheckpointTensor tensor(const Json& json, const std::string& owner, const Manifest& manifest, bool partial) const {
    CheckpointTensor tensor;
    const std::string name = text(json, "dtype", owner);
    bool known = false;
    for (const DType dtype : kAllDTypes) {
      if (dtype_name(dtype) == name) tensor.dtype = dtype, known = true;
    }
    if (!known) corrupt("unknown dtype \"" + name + "\" of " + owner);
    for (const auto& size : list(json, "shape", owner))
      tensor.shape.push_back(whole_number(size, "\"shape\" of " + owner));
    const auto count = num_elements(tensor.shape);
    const int64_t width = size_of(tensor.dtype);
    if (!count || *count > kMaxNumber / width)
      corrupt("the shape of " + owner + " has too many elements: over 2^60 bytes");
    std::vector<TensorSlice> slices;
    for (const auto& item : list(json, "pieces", owner)) {
      tensor.pieces.push_back(piece(item, tensor.shape, owner));
      const auto& added = tensor.pieces.back();
      if (!manifest.files.contains(added.file))
        corrupt("a piece of " + owner + " is in the unlisted file \"" + added.file + "\"");
      if (auto fault = find_fault(added.slice, tensor.shape); !fault.empty()) corrupt(owner + ": " + fault);
      const int64_t bytes = added.slice.elements.size() * width, room = manifest.files.at(added.file);
      if (bytes > room) {
        corrupt("a piece of " + owner + " takes " + std::to_string(bytes) + " bytes, its file \"" + added.file +
                "\" has " + std::to_string(room));
      }
      slices.push_back(added.slice);
    }
    if (partial) return tensor;
    if (auto fault = find_cover_fault(slices, tensor.shape); !fault.empty()) corrupt(owner + ": " + fault);
    return tensor;
  }

  const Json& list(const Json& object, const char* name, const std::string& owner) const {
    const Json& value = member(object, name, owner);
    if (!value.is_array()) corrupt("\"" + std::string(name) + "\" of " + owner + " must be a list");
    return value;
  }

  const Json& table(const Json& object, const char* name) const {
    const Json& value = member(object, name, "the manifest");
    if (!value.is_object()) corrupt("\"" + std::string(name) + "\" must be an object");
    return value;
  }

 private:
  const std::string& file_;
};

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos;
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& file, bool partial) {
  const Parser parser(file);
  const Json json = parse_strict_json(text, kManifestDepth, file, 0, kManifestFix);
  const std::string manifest_name = "the manifest";
  if (parser.text(json, "format", manifest_name) != kManifestFormat) {
    parser.corrupt(std::string("\"format\" must be \"") + kManifestFormat + "\"");
  }
  if (json.value("version", Json()) != kManifestVersion) {
    parser.corrupt("version " + json.value("version", Json()).dump(-1, ' ', true, Json::error_handler_t::replace) +
                   " is not known, this herd reads version 1");
  }
  if (parser.text(json, "crc32c", manifest_name) != manifest_checksum(json)) {
    parser.corrupt("the checksum of the manifest is " + parser.text(json, "crc32c", manifest_name) +
                   ", its content gives " + manifest_checksum(json));
  }
  Manifest manifest;
  manifest.herd_version = parser.text(json, "herd", manifest_name);
  manifest.step = parser.whole_number(parser.member(json, "step", manifest_name), "\"step\"");
  manifest.samples = parser.whole_number(parser.member(json, "samples", manifest_name), "\"samples\"");
  manifest.config = parser.text(json, "config", manifest_name);
  for (const auto& [name, value] : parser.table(json, "notes").items()) {
    if (!value.is_string()) parser.corrupt("the note \"" + name + "\" must be text");
    manifest.notes[name] = value.get<std::string>();
    if (const std::string& note = manifest.notes[name]; name == kRunNote && !note.empty() && !is_run_id(note))
      parser.corrupt("the note \"" + name + "\" is \"" + printable(note) + "\", but " + kRunIdRule);
  }
  int64_t all_bytes = 0;
  for (const auto& [name, bytes] : parser.table(json, "files").items()) {
    if (!is_plain_file_name(name)) parser.corrupt("the file name \"" + name + "\" leaves the checkpoint's folder");
    manifest.files[name] = parser.whole_number(bytes, "the bytes of file \"" + name + "\"");
    all_bytes += manifest.files[name];
    if (all_bytes > kMaxNumber) parser.corrupt("the files take more than 2^60 bytes together");
  }
  for (const auto& [name, tensor] : parser.table(json, "tensors").items()) {
    manifest.tensors[name] = parser.tensor(tensor, "tensor \"" + name + "\"", manifest, partial);
  }
  return manifest;
}

}  // namespace herd
