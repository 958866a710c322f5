#include "herd/storage/checkpoint_folder.h"

#include <algorithm>
#include <cstdio>
#include <regex>
#include <tuple>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/storage/checkpoint_reader.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/run_id.h"

namespace herd {
namespace {

bool has_manifest(const std::filesystem::path& folder) { return is_file(folder / kManifestName, FileSystem(folder)); }

// Returns what has the name of a step's folder and is what `is_wanted` says, newest first.
std::vector<FoundCheckpoint> list_steps(const std::filesystem::path& root,
                                        bool (*is_wanted)(const std::filesystem::path&, const FileSystem&)) {
  static const std::regex pattern("step-([0-9]{8,15})(?:-([0-9]{1,6}))?");
  const FileSystem files(root);
  std::vector<FoundCheckpoint> found;
  for (const auto& path : entries_of(root, files)) {
    const std::string name = path.filename().string();
    std::smatch parts;
    if (!std::regex_match(name, parts, pattern) || !is_wanted(path, files)) continue;
    found.push_back({path, std::stoll(parts[1]), parts[2].matched ? std::stoi(parts[2]) : 1});
  }
  std::sort(found.begin(), found.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return std::tie(a.step, a.attempt) > std::tie(b.step, b.attempt);
  });
  return found;
}

// Returns every folder of a step, whole or cut short, newest first.
std::vector<FoundCheckpoint> list_folders(const std::filesystem::path& root) { return list_steps(root, &is_folder); }

// Says whether the folder is a checkpoint whose files have the lengths that its manifest states.
bool lengths_hold(const std::filesystem::path& folder) {
  try {
    if (!has_manifest(folder)) return false;
    CheckpointReader reader(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool is_of_another_run(const std::filesystem::path& folder, const std::string& run) {
  if (run.empty()) return false;
  const auto owner = run_of_checkpoint(folder);
  return owner && !owner->empty() && *owner != run;
}

bool remove_folder(const std::filesystem::path& folder, FileSystem& files) {
  try {
    if (has_manifest(folder) && (files.remove(folder / kManifestName) < 0 || files.sync_folder(folder) < 0))
      return false;
    for (const auto& path : entries_of(folder, files)) files.remove(path);
    return files.remove(folder) == 0;
  } catch (const Error&) {  // the folder can't be read
    return false;
  }
}

}  // namespace

std::string checkpoint_folder_name(int64_t step, int attempt) {
  char name[64];
  std::snprintf(name, sizeof name, attempt == 1 ? "step-%08lld" : "step-%08lld-%d", static_cast<long long>(step),
                attempt);
  return name;
}

std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& root) {
  auto found = list_folders(root);
  std::erase_if(found, [](const FoundCheckpoint& checkpoint) { return !has_manifest(checkpoint.folder); });
  return found;
}

std::optional<std::string> run_of_checkpoint(const std::filesystem::path& folder) {
  try {
    const Manifest manifest = read_manifest(folder);
    const auto note = manifest.notes.find(kRunNote);
    return note == manifest.notes.end() ? "" : note->second;
  } catch (const Error&) {
    return {};
  }
}

bool holds_checkpoint(const std::filesystem::path& root, const std::string& run) {
  const auto found = list_checkpoints(root);
  return std::any_of(found.begin(), found.end(), [&](const FoundCheckpoint& checkpoint) {
    return !is_of_another_run(checkpoint.folder, run) && lengths_hold(checkpoint.folder);
  });
}

std::optional<FoundCheckpoint> newest_whole_checkpoint(const std::filesystem::path& root,
                                                       std::vector<std::string>& passed_over, const std::string& run) {
  const auto is_link_or_folder = [](const std::filesystem::path& path, const FileSystem& files) {
    return is_link(path, files) || is_folder(path, files);
  };
  for (const auto& checkpoint : list_steps(root, is_link_or_folder)) {
    if (is_link(checkpoint.folder, FileSystem(root))) {
      passed_over.push_back(checkpoint.folder.string() +
                            " is a link, and none is followed below a folder of checkpoints\n  fix: put the checkpoint "
                            "itself there, or name it in checkpoint.resume");
      continue;
    }
    if (!has_manifest(checkpoint.folder) || is_of_another_run(checkpoint.folder, run)) continue;
    try {
      CheckpointReader(checkpoint.folder).verify();
      return checkpoint;
    } catch (const Error& error) {
      passed_over.push_back(error.message());
    }
  }
  return {};
}

std::filesystem::path resolve_checkpoint(const std::filesystem::path& path) {
  if (has_manifest(path)) return path;
  std::vector<std::string> passed_over;
  for (const auto& root : {path, path / "checkpoints"}) {
    if (!is_folder(root, FileSystem(path))) continue;
    if (auto found = newest_whole_checkpoint(root, passed_over)) return found->folder;
  }
  if (!passed_over.empty()) throw Error(Code::kCorruptFile, passed_over.front());
  throw Error(Code::kBadConfig, "there is no checkpoint at " + path.string() + ": no " + kManifestName +
                                    ", and no folder step-* that has one" +
                                    "\n  fix: name a run, its folder checkpoints, or one of the folders in it");
}

std::vector<std::filesystem::path> keep_newest(const std::filesystem::path& root, const Keep& keep, FileSystem& files) {
  HERD_CHECK_GE(keep.newest, 1);
  int kept = keep.written.empty() ? 0 : 1;
  std::vector<std::filesystem::path> remaining;
  for (const auto& checkpoint : list_folders(root)) {
    if (checkpoint.folder == keep.written || is_of_another_run(checkpoint.folder, keep.run)) continue;
    if (kept >= keep.newest) {
      if (!remove_folder(checkpoint.folder, files)) remaining.push_back(checkpoint.folder);
    } else if (lengths_hold(checkpoint.folder)) {
      ++kept;
    }
  }
  return remaining;
}

void discard_unfinished(const std::filesystem::path& folder, FileSystem& files) {
  try {
    if (!has_manifest(folder)) remove_folder(folder, files);
  } catch (const Error&) {  // the folder can't be read: the next save of the step finds it
  }
}

}  // namespace herd
