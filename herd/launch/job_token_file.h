// Reads the file that holds a job's secret (--token-file, HERD_TOKEN_FILE).
#pragma once

#include <filesystem>
#include <string>

namespace herd::launch {

// Returns the first word of the file. Throws kBadConfig where there is none, where the file can't be read, or where
// anybody but its owner can read or write it: who knows the token is of the job, and who can change it decides who is.
std::string read_token_file(const std::filesystem::path& path);

}  // namespace herd::launch
