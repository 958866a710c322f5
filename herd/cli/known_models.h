// Run files and clusters that herd brings along: <prefix>/share/herd/{models,clusters}/NAME.toml, found beside the
// command, so that a name does where a path would.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace herd::cli {

// Throws kStorage if the folder is not where the command was installed or built.
std::filesystem::path share_folder();

struct KnownFile {
  std::string name;   // "gpt3-175b"
  std::string about;  // its first line, without the "# "
};
std::vector<KnownFile> known_files(const std::string& kind);  // "models", "clusters"; by name

// The path itself where a file is there, else the known file of that name. Throws kBadConfig naming the nearest one.
std::filesystem::path find_file(const std::string& path_or_name, const std::string& kind);

}  // namespace herd::cli
