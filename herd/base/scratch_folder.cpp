#include "herd/base/scratch_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>

#include "herd/base/error.h"

namespace herd {

std::string make_scratch_folder(const std::string& name) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) throw_errno(Code::kStorage, "find the folder for temporary files (TMPDIR)", error.value());
  std::string folder = (parent / (name + "-XXXXXX")).string();
  if (::mkdtemp(folder.data()) == nullptr) throw_errno(Code::kStorage, "make a folder in " + parent.string(), errno);
  return folder;
}

}  // namespace herd
