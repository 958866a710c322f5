#include "herd/storage/manifest.h"

#include "herd/base/error.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/checksum.h"
#include "herd/storage/manifest_parser_internal.h"
#include "herd/storage/readable_file.h"

namespace herd {
namespace {

using Json = nlohmann::json;

Json ranges_json(const std::vector<IndexRange>& ranges) {
  Json list = Json::array();
  for (const auto& range : ranges) list.push_back({range.begin, range.end});
  return list;
}

Json piece_json(const CheckpointPiece& piece, const std::vector<int64_t>& shape) {
  Json json = {{"elements", {piece.slice.elements.begin, piece.slice.elements.end}},
               {"file", piece.file},
               {"entry", piece.entry},
               {"crc32c", format_crc32c(piece.checksum)}};
  if (piece.slice.box != whole_slice(shape).box) json["box"] = ranges_json(piece.slice.box);
  return json;
}

// Writes JSON without white space, with names sorted and everything beyond ASCII escaped.
std::string text_of(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

}  // namespace

std::string manifest_checksum(Json manifest) {
  manifest.erase("crc32c");
  return format_crc32c(crc32c(text_of(manifest)));
}

std::string format_manifest(const Manifest& manifest) {
  Json tensors = Json::object();
  for (const auto& [name, tensor] : manifest.tensors) {
    Json pieces = Json::array();
    for (const auto& piece : tensor.pieces) pieces.push_back(piece_json(piece, tensor.shape));
    tensors[name] = {{"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"pieces", pieces}};
  }
  Json json = {{"format", kManifestFormat}, {"version", kManifestVersion}, {"herd", manifest.herd_version},
               {"step", manifest.step},     {"samples", manifest.samples}, {"config", manifest.config},
               {"notes", manifest.notes},   {"files", manifest.files},     {"tensors", tensors}};
  json["crc32c"] = manifest_checksum(json);
  std::string text = "{\n";
  for (const char* name : {"format", "version", "herd", "step", "samples", "config", "notes", "files", "crc32c"}) {
    text += text_of(name) + ": " + text_of(json[name]) + ",\n";
  }
  text += "\"tensors\": {";
  std::string separator = "\n";
  for (const auto& [name, tensor] : tensors.items()) {
    text += separator + text_of(name) + ": " + text_of(tensor);
    separator = ",\n";
  }
  return text + "}}\n";
}

void merge_manifest(Manifest& whole, const Manifest& part) {
  for (const auto& [file, bytes] : part.files) whole.files[file] = bytes;
  for (const auto& [name, tensor] : part.tensors) {
    auto [at, is_new] = whole.tensors.try_emplace(name, tensor);
    if (is_new) continue;
    auto& merged = at->second;
    if (merged.dtype != tensor.dtype || merged.shape != tensor.shape) {
      throw Error(Code::kBadConfig, "tensor \"" + name + "\": ranks state different dtypes or global shapes for it");
    }
    merged.pieces.insert(merged.pieces.end(), tensor.pieces.begin(), tensor.pieces.end());
  }
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const ReadableFile file(folder / kManifestName, FileSystem(folder));
  return parse_manifest(file.text(), file.path().string());
}

void write_manifest(const std::filesystem::path& folder, const Manifest& manifest, FileSystem& files) {
  write_file_atomically(folder / kManifestName, format_manifest(manifest), files);
}

}  // namespace herd
