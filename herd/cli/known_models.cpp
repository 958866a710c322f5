#include "herd/cli/known_models.h"

#include <algorithm>
#include <fstream>

#include "herd/base/error.h"
#include "herd/spec/nearest_name.h"
#include "herd/storage/file_kind.h"

namespace herd::cli {

namespace fs = std::filesystem;

fs::path share_folder() {
  const fs::path binaries = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path installed = binaries / HERD_SHARE_FROM_BIN, build = binaries / "share/herd";
  for (const fs::path& folder : {installed, build}) {
    if (is_folder(folder / "models")) return folder.lexically_normal();
  }
  throw Error(Code::kStorage, "herd's own files are neither in " + installed.lexically_normal().string() + " nor in " +
                                  build.string() + "\n  fix: install herd again, or give the path of a run file");
}

std::vector<KnownFile> known_files(const std::string& kind) {
  std::vector<KnownFile> out;
  for (const fs::path& path : entries_of(share_folder() / kind)) {
    if (path.extension() != ".toml") continue;
    std::string line;
    std::getline(std::ifstream(path) >> std::ws, line);
    out.push_back({path.stem(), line.starts_with("# ") ? line.substr(2) : ""});
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

fs::path find_file(const std::string& path_or_name, const std::string& kind, const std::vector<std::string>& others) {
  if (is_file(path_or_name)) return path_or_name;
  std::vector<std::string> names;
  for (const KnownFile& known : known_files(kind)) names.push_back(known.name);
  if (std::find(names.begin(), names.end(), path_or_name) != names.end())
    return share_folder() / kind / (path_or_name + ".toml");
  names.insert(names.end(), others.begin(), others.end());
  std::string known_names;
  for (const std::string& name : names) known_names += (known_names.empty() ? "" : ", ") + name;
  throw Error(Code::kBadConfig, "\"" + path_or_name + "\" is no file, and herd knows no " +
                                    (kind == "models" ? "model" : "cluster or device") +
                                    " of that name\n  fix: did you mean " + spec::nearest_name(path_or_name, names) +
                                    "? It knows " + known_names);
}

}  // namespace herd::cli
