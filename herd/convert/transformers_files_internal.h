// Finds the tensors of a folder that transformers wrote, by name, in all its *.safetensors files. Some files begin each
// name with a prefix, which is taken off. Threads: open() by one; at() and tensors() by any, once opened.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "herd/convert/transformers_format.h"
#include "herd/storage/safetensors.h"

namespace herd::convert {

// Throws kBadConfig where the file is the pointer that a clone without git-lfs has in place of a large file.
void refuse_lfs_pointer(const std::filesystem::path& path);

class TransformersFiles {
 public:
  struct Place {
    const SafetensorsFile* file;  // this object owns it
    const TensorEntry* entry;     // the file owns it
  };

  // Opens the files: those of the folder's index, where it names some that are there; else all but Mistral's
  // consolidated*.safetensors, which hold the same weights. `format` is borrowed. Throws kBadConfig if there is no
  // file, if one is a pointer of Git LFS, or if a tensor is in two. Throws what SafetensorsFile throws.
  void open(const std::filesystem::path& folder, const TransformersFormat& format);
  const std::map<std::string, Place>& tensors() const { return tensors_; }
  // Returns where a tensor is. Throws kBadConfig if it is missing, with the file that should hold it by the folder's
  // index.
  const Place& at(const std::string& name) const;

 private:
  void read_index();
  std::string without_prefix(const std::string& name) const;

  std::filesystem::path folder_;
  std::string_view prefix_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> tensors_;
  std::map<std::string, std::string> file_of_tensor_;  // as the folder's index says
};

}  // namespace herd::convert
