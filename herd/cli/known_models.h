// Finds run files and clusters that herd brings along, beside the command:
// <prefix>/share/herd/{models,clusters}/NAME.toml. So a name serves in place of a path.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace herd::cli {

// Throws kStorage if the folder is not where the command was installed or built.
std::filesystem::path share_folder();

struct KnownFile {
  std::string name;   // "gpt3-175b"
  std::string about;  // first line of the file, without the "# "
};
std::vector<KnownFile> known_files(const std::string& kind);  // `kind` is "models" or "clusters"; sorted by name

// Returns the path itself where a file is there, else the known file of that name. Throws kBadConfig with the nearest
// one, or the nearest of `others`, names that the caller knows.
std::filesystem::path find_file(const std::string& path_or_name, const std::string& kind,
                                const std::vector<std::string>& others = {});

}  // namespace herd::cli
