// A folder that appears whole or not at all: filled beside its place under a temporary name, made durable, renamed.
//
//   AtomicFolder folder("checkpoints/for-8-ranks");
//   ...write durable files into folder.working_path()...
//   folder.commit();
//
// What stood at the path stays until commit(), which replaces a model's own files (manifest.json, config.json,
// *.safetensors and their index) and keeps all others that the new folder has no file for: tokenizers, a README.
// Without commit() the destructor removes the temporary folder. After a kill it stays behind as `<name>.tmp.<pid>.<n>`,
// which the next AtomicFolder of that path deletes. Throws kBadConfig if the path is taken and may not be replaced,
// kStorage as AtomicFile. Threads: one at a time.
#pragma once

#include <filesystem>

#include "herd/storage/file_system.h"

namespace herd {

enum class Replace { kNever, kModels };  // kModels: a checkpoint or a Hugging Face model; an empty folder always

class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path path, Replace replace = Replace::kNever,
                        FileSystem& files = FileSystem::system());
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& working_path() const { return working_; }
  void commit();  // what it replaces is gone when it returns

 private:
  FileSystem& files_;
  std::filesystem::path path_, working_;
  bool committed_ = false;
};

// Deletes a file, or a folder with all that is in it; what can't be deleted stays.
void remove_tree(const std::filesystem::path& path, FileSystem& files = FileSystem::system());

}  // namespace herd
