#include "herd/base/scratch_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>

#include "herd/base/error.h"

namespace herd {

std::string make_scratch_folder(const std::string& name) {
  std::error_code failed;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(failed);
  if (failed) throw_errno(Code::kStorage, "find the folder for temporary files (TMPDIR)", failed.value());
  std::string made = (parent / (name + "-XXXXXX")).string();
  if (::mkdtemp(made.data()) == nullptr) throw_errno(Code::kStorage, "make a folder in " + parent.string(), errno);
  return made;
}

}  // namespace herd
