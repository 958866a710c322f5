#include "herd/storage/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "herd/base/descriptor.h"
#include "herd/base/error.h"
#include "herd/base/regular_file.h"

namespace herd {

MappedFile::MappedFile(std::filesystem::path path, const FileSystem& files) : path_(std::move(path)) {
  const Descriptor file(files.open(path_, O_RDONLY));
  if (file.fd < 0) refuse_to_read(path_, -file.fd);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) throw_errno(Code::kStorage, "look at " + path_.string(), errno);
  const auto size = static_cast<size_t>(info.st_size);
  void* address = size == 0 ? nullptr : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) throw_errno(Code::kStorage, "map " + path_.string(), errno);
  bytes_ = {static_cast<const std::byte*>(address), size};
  named_.emplace(bytes_, path_.string());
}

MappedFile::~MappedFile() {
  named_.reset();
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})), named_(std::move(other.named_)) {}

}  // namespace herd
