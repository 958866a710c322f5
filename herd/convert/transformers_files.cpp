#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/base/regular_file.h"
#include "herd/convert/transformers_files_internal.h"
#include "herd/convert/transformers_folder.h"
#include "herd/storage/file_kind.h"

namespace herd::convert {

namespace fs = std::filesystem;

namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";

// Returns the files of weights in the folder. Where an index names some of them, as transformers writes it, the others
// are of other formats of the same weights; consolidated*.safetensors is Mistral's.
std::vector<fs::path> files_of_weights(const fs::path& folder, const std::set<std::string>& indexed) {
  std::vector<fs::path> all, named, without_consolidated;
  for (const fs::path& path : entries_of(folder)) {
    if (path.extension() != ".safetensors") continue;
    all.push_back(path);
    if (indexed.contains(path.filename().string())) named.push_back(path);
    if (!path.filename().string().starts_with("consolidated")) without_consolidated.push_back(path);
  }
  return !named.empty() ? named : !without_consolidated.empty() ? without_consolidated : all;
}

}  // namespace

void refuse_lfs_pointer(const fs::path& path) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (read_regular_file(path, kPointer.size()) != kPointer) return;
  throw Error(Code::kBadConfig, path.string() + " is a pointer of Git LFS, and what it points to is not there\n" +
                                    "  fix: git lfs pull in that folder");
}

std::string list_names_for_message(const fs::path& folder) {
  constexpr size_t kMaxShown = 12;
  std::set<std::string> names;
  for (const fs::path& path : entries_of(folder)) names.insert(path.filename().string());
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (++shown > kMaxShown) return text + " and " + std::to_string(names.size() - kMaxShown) + " more";
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

void TransformersFiles::open(const fs::path& folder, const TransformersFormat& format) {
  folder_ = folder;
  prefix_ = format.prefix;
  read_index();
  std::set<std::string> indexed;
  for (const auto& [name, file] : file_of_tensor_) indexed.insert(file);
  for (const fs::path& path : files_of_weights(folder, indexed)) {
    refuse_lfs_pointer(path);
    files_.push_back(std::make_unique<SafetensorsFile>(path));
  }
  if (files_.empty()) {
    throw Error(Code::kBadConfig, folder.string() + " has no *.safetensors, but " + list_names_for_message(folder) +
                                      ", and other formats of weights are not read"
                                      "\n  fix: in Python, " +
                                      std::string(format.loader) + ".from_pretrained(\"" + folder.string() +
                                      "\").save_pretrained(FOLDER, safe_serialization=True)");
  }
  for (const auto& file : files_) {
    for (const TensorEntry& entry : file->tensors()) {
      const std::string name = without_prefix(entry.name);
      if (tensors_.try_emplace(name, Place{file.get(), &entry}).second) continue;
      throw Error(Code::kBadConfig, folder.string() + ": tensor \"" + printable(name) +
                                        "\" is there twice, the second in " + file->path().filename().string() +
                                        "\n  fix: keep the files of one model in the folder");
    }
  }
}

std::string TransformersFiles::without_prefix(const std::string& name) const {
  return name.starts_with(prefix_) ? name.substr(prefix_.size()) : name;
}

const TransformersFiles::Place& TransformersFiles::at(const std::string& name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
  const auto indexed = file_of_tensor_.find(name);
  const std::string file = indexed == file_of_tensor_.end() ? "" : indexed->second;
  throw Error(Code::kBadConfig, folder_.string() + " lacks \"" + name + "\", which its config.json states" +
                                    (file.empty() ? "\n  fix: put all files of the model into the folder"
                                                  : " and its " + std::string(kIndexName) + " says is in " + file +
                                                        "\n  fix: put that file into the same folder"));
}

// Reads which file holds which tensor according to the index beside the files; nothing where it does not say.
void TransformersFiles::read_index() {
  const std::string text = read_regular_file(folder_ / kIndexName).value_or("");
  const auto index = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) return;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (file.is_string()) file_of_tensor_[without_prefix(name)] = file.get<std::string>();
  }
}

}  // namespace herd::convert
