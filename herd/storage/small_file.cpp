#include "herd/storage/small_file.h"

#include "herd/base/error.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/readable_file.h"

namespace herd {

SmallFile read_small_file(const std::filesystem::path& path, const FileSystem& files) {
  const ReadableFile file(path, files);
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error) throw_errno(Code::kStorage, "read the permissions of " + path.string(), error.value());
  return {file.text(), static_cast<int>(status.permissions()) & 0777};
}

void write_small_file(const std::filesystem::path& path, const SmallFile& file, FileSystem& files) {
  AtomicFile copy(path, files, file.mode);
  copy.write(std::string_view(file.bytes));
  copy.commit();
}

}  // namespace herd
