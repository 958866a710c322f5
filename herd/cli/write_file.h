// Writes files that a command leaves, whole or not at all.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace herd::cli {

// Writes `content` to `path` and says so on `say`. Old content stays until the new one is durable; a device or a pipe
// is written to as it is. Throws kStorage.
void write_file(const std::string& path, std::string_view content, std::FILE* say = stdout);

}  // namespace herd::cli
