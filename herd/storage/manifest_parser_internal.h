// Defines what the writer and the parser of manifests share. Threads: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace herd {

inline constexpr char kManifestFormat[] = "herd-checkpoint";
inline constexpr int kManifestVersion = 1;

// Returns the CRC-32C, in hexadecimal digits, of the object's text without its member "crc32c". The text has sorted
// names, no white space, and escapes in place of everything beyond ASCII.
std::string manifest_checksum(nlohmann::json manifest);

}  // namespace herd
