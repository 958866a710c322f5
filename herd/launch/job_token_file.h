// Reads the file that holds a job's secret (--token-file, HERD_TOKEN_FILE). Threads: any.
#pragma once

#include <filesystem>
#include <string>

namespace herd::launch {

// Returns the first word of the file. Throws kBadConfig where the file holds no word, can't be read, or can be read or
// written by others than its owner. A process that knows the token belongs to the job, and whoever writes the file
// decides who does.
std::string read_token_file(const std::filesystem::path& path);

}  // namespace herd::launch
