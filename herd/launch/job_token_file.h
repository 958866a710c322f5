// Reads the file that holds a job's secret (--token-file, HERD_TOKEN_FILE). Threads: any.
#pragma once

#include <filesystem>
#include <string>

namespace herd::launch {

// Returns the first word of the file. Throws kBadConfig where there is none, where the file can't be read, or where
// others than its owner can read or write it. A process that knows the token belongs to the job, and whoever writes the
// file decides who does.
std::string read_token_file(const std::filesystem::path& path);

}  // namespace herd::launch
