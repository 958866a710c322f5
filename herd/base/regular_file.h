// Opens and reads regular files alone: a FIFO that nobody writes would block whoever opens it, and a device may have no
// end. Links are followed. Threads: any.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include "herd/base/descriptor.h"

namespace herd {

// Opens a file for reading. Throws kStorage where the system refuses, or where there is another kind of file.
Descriptor open_regular_file(const std::filesystem::path& path);

// Throws what open_regular_file() throws for an errno value, of which EINVAL says that there is another kind of file.
[[noreturn]] void refuse_to_read(const std::filesystem::path& path, int errno_value);

// Returns the first `most_bytes` of the file, or all where it has fewer; nothing if there is no regular file at the
// path that can be read.
std::optional<std::string> read_regular_file(const std::filesystem::path& path,
                                             size_t most_bytes = std::numeric_limits<size_t>::max());

}  // namespace herd
