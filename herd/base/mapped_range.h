// Says which file it was, where a process dies by SIGBUS because a page of a mapped file can't be read: the drive
// fails, or the file was cut while it was mapped. The message goes to stderr, with the byte and the fix, and the signal
// then ends the process as it would have.
// Threads: any.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace herd {

// Names the file of a mapping for as long as this lives. Make it after the mapping, and end it before. Of more than 256
// at a time, those beyond stay without a name.
class MappedRange {
 public:
  // `file_begin` is the byte of the file with which the mapping begins.
  MappedRange(std::span<const std::byte> bytes, const std::string& path, size_t file_begin = 0);
  ~MappedRange();
  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&&) = delete;

 private:
  int place_ = -1;  // in the table that the handler reads; -1 = none
};

}  // namespace herd
