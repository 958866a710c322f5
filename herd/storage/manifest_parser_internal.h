// Defines what the writer and the parser of manifests share.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace herd {

inline constexpr char kManifestFormat[] = "herd-checkpoint";
inline constexpr int kManifestVersion = 1;

// CRC-32C of the object without its member "crc32c": names sorted, no white space, everything beyond ASCII escaped.
std::string manifest_checksum(nlohmann::json manifest);

}  // namespace herd
