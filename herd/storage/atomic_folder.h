// Makes a folder appear whole or not at all: it is filled beside its place under a temporary name, made durable, and
// renamed.
//
//   AtomicFolder folder("checkpoints/for-8-ranks");
//   ...write durable files into folder.working_path()...
//   folder.commit();
//
// The path keeps its old content until commit(). That replaces a model's own files (manifest.json, config.json,
// *.safetensors and their index), and keeps all others that the new folder has no file for: tokenizers, a README.
// Without commit() the destructor removes the temporary folder. After a kill it stays behind as `<name>.tmp.<pid>.<n>`,
// which the next AtomicFolder of that path deletes.
// Throws kBadConfig if the path is taken and may not be replaced, kStorage as AtomicFile. Threads: one at a time.
#pragma once

#include <filesystem>

#include "herd/storage/file_system.h"

namespace herd {

// kModels replaces a checkpoint or a Hugging Face model; both replace an empty folder
enum class Replace { kNever, kModels };

class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path path, Replace replace = Replace::kNever,
                        FileSystem& files = FileSystem::system());
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& working_path() const { return working_; }
  void commit();  // returns when what it replaces is gone

 private:
  FileSystem& files_;
  std::filesystem::path path_, working_;
  bool committed_ = false;
};

// Deletes a file, or a folder with all that is in it; ignores errors.
void remove_tree(const std::filesystem::path& path, FileSystem& files = FileSystem::system());

}  // namespace herd
