// Finds the tensors of a folder that transformers wrote, by name, in all its *.safetensors files. Some files begin each
// name with a prefix, which is taken off. Threads: open() by one; at() and tensors() by any, once opened.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "herd/storage/safetensors.h"

namespace herd::convert {

class TransformersFiles {
 public:
  struct Place {
    const SafetensorsFile* file;  // this object owns it
    const TensorEntry* entry;     // the file owns it
  };

  // Opens the files. `prefix` is borrowed. Throws kBadConfig if there is no file, if one is a pointer of Git LFS, or if
  // a tensor is in two. Throws what SafetensorsFile throws.
  void open(const std::filesystem::path& folder, std::string_view prefix);
  const std::map<std::string, Place>& tensors() const { return tensors_; }
  // Returns where a tensor is. Throws kBadConfig if it is missing, with the file that should hold it by the folder's
  // index.
  const Place& at(const std::string& name) const;

 private:
  std::string file_of_index(const std::string& name) const;

  std::string without_prefix(const std::string& name) const;

  std::filesystem::path folder_;
  std::string_view prefix_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> tensors_;
};

}  // namespace herd::convert
