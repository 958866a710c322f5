// The tensors of all *.safetensors of a folder of transformers, by name, without the prefix with which some files begin
// each name. Threads: any, once opened.
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
    const SafetensorsFile* file;
    const TensorEntry* entry;
  };

  // Throws kBadConfig where there is none, one is a pointer of Git LFS, or a tensor is in two.
  void open(const std::filesystem::path& folder, std::string_view prefix);
  const std::map<std::string, Place>& tensors() const { return tensors_; }
  // Throws kBadConfig naming what is missing, and the file that should hold it where the folder's index says so.
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
