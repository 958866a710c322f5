#include "herd/storage/atomic_folder.h"

#include <string>
#include <vector>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/temporary_name.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

// Says whether the folder holds a checkpoint, or a Hugging Face model with its weights.
bool is_model(const fs::path& path) {
  if (is_taken(path / "manifest.json")) return true;
  if (!is_taken(path / "config.json")) return false;
  for (const auto& file : entries_of(path)) {
    if (file.extension() == ".safetensors") return true;
  }
  return false;
}

// Says whether the file is part of a model, so that a new model replaces it.
bool is_of_a_model(const fs::path& file) {
  const std::string name = file.filename().string();
  return name == "manifest.json" || name == "config.json" || name.ends_with(".safetensors") ||
         name.ends_with(".safetensors.index.json");
}

// Links the files of `from` that `to` lacks into `to`, or copies them where the file system has no links.
void keep(const fs::path& from, const fs::path& to, FileSystem& files) {
  if (is_taken(to)) return;
  std::error_code error;
  if (fs::is_directory(fs::symlink_status(from, error))) {
    if (const int result = files.make_folder(to); result < 0)
      throw_errno(Code::kStorage, "keep " + from.string(), -result);
    for (const auto& inside : entries_of(from)) keep(inside, to / inside.filename(), files);
    return;
  }
  if (files.link(from, to) == 0) return;
  fs::copy(from, to, fs::copy_options::copy_symlinks, error);
  if (error) throw_errno(Code::kStorage, "keep " + from.string() + " beside the new model", error.value());
}

void check_free(const fs::path& path, Replace replace) {
  if (!is_taken(path)) return;
  if (is_folder(path) && entries_of(path).empty()) return;
  if (replace == Replace::kModels && is_model(path)) return;
  throw Error(Code::kBadConfig,
              path.string() + " is there already" +
                  (replace == Replace::kNever
                       ? "\n  fix: another folder, or --overwrite to replace a checkpoint"
                       : ", and is no model (it holds no manifest.json, and no config.json with *.safetensors), "
                         "so it is not overwritten\n  fix: another folder"));
}

fs::path without_trailing_slash(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

}  // namespace

AtomicFolder::AtomicFolder(fs::path path, Replace replace, FileSystem& files)
    : files_(files), path_(without_trailing_slash(path)) {
  check_free(path_, replace);
  make_folders(folder_of(path_), files_);
  remove_stale_temporaries_of(path_, files_);
  int result;
  do {
    working_ = temporary_name(path_);
    result = files_.make_folder(working_);
  } while (result == -EEXIST);  // left by a killed process that had this one's id
  if (result < 0) {
    throw_errno(Code::kStorage, "make the folder " + working_.string() + " (to become " + path_.string() + ")",
                -result);
  }
}

AtomicFolder::~AtomicFolder() {
  if (committed_) return;
  try {
    remove_tree(working_, files_);
  } catch (const std::exception&) {  // out of memory: the folder stays, as after a kill
  }
}

void AtomicFolder::commit() {
  HERD_CHECK(!committed_, "commit() is called once");
  const auto check = [&](int result, const char* what) {
    if (result < 0) throw_errno(Code::kStorage, std::string(what) + " " + path_.string(), -result);
  };
  const auto replaced = entries_of(path_);
  const bool is_replaced = !replaced.empty();
  for (const auto& old : replaced) {
    if (!is_of_a_model(old)) keep(old, working_ / old.filename(), files_);
  }
  check(files_.sync_folder(working_), "sync the files of");
  check(is_replaced ? files_.exchange(working_, path_) : files_.rename(working_, path_), "put the new folder at");
  committed_ = true;
  check(files_.sync_folder(folder_of(path_)), "sync the folder of");
  if (is_replaced) remove_tree(working_, files_);
}

void remove_tree(const fs::path& folder, FileSystem& files) {
  const FileSystem beside(folder_of(folder));  // follows no link below
  std::vector<std::string> names;
  beside.list(folder, names);  // none of a file or a link
  for (const std::string& name : names) remove_tree(folder / name, files);
  files.remove(folder);
}

}  // namespace herd
