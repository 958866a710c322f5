// Manages the folder of a run's checkpoints: which there are, which one to resume from, which to delete.
// A checkpoint is a folder step-<step> or step-<step>-<attempt> with a manifest. A folder without one is a save that
// was cut short, and is never read. A checkpoint is intact if its manifest is valid and its files have the listed
// lengths. It is whole if they have the listed checksums, too. No link in the folder is followed: a link step-* is no
// checkpoint, and is left alone. Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "herd/storage/file_system.h"

namespace herd {

struct FoundCheckpoint {
  std::filesystem::path folder;
  int64_t step = 0;
  int attempt = 1;
};

std::string checkpoint_folder_name(int64_t step, int attempt = 1);  // returns "step-00000100" or "step-00000100-2"

// Returns folders with a manifest, newest first, without reading the manifests; none if `root` is not there. This and
// all functions below throw kStorage where the system does not let `root` be listed, since its content is unknown then.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& root);

// Returns the id of the run that saved a checkpoint, "" where it does not say; nothing if its manifest can't be read.
std::optional<std::string> run_of_checkpoint(const std::filesystem::path& folder);

// Tells whether an intact checkpoint is of this run, or names no run.
bool holds_checkpoint(const std::filesystem::path& root, const std::string& run = "");

// Returns the newest whole checkpoint, and appends to `passed_over` what is wrong with each newer one (that it is a
// link, too). With `run`, it leaves out those that say that they are of another run.
std::optional<FoundCheckpoint> newest_whole_checkpoint(const std::filesystem::path& root,
                                                       std::vector<std::string>& passed_over,
                                                       const std::string& run = "");

// Returns `path` itself if it is a checkpoint, else the newest whole one in it or in its folder "checkpoints". Throws
// kBadConfig if there is none; kCorruptFile if all are broken, with what is wrong with the newest.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

struct Keep {
  int newest = 2;                      // >= 1
  std::string run = {};                // id of the run; checkpoints that say that they are of another run stay
  std::filesystem::path written = {};  // the one just written: it is kept and counted, even if others have later steps
};

// Deletes all but the newest intact checkpoints, and older saves that were cut short. Broken ones don't count, so the
// last good one is never deleted. A checkpoint loses its manifest first, so a half deleted one is no checkpoint. A
// failure to delete is not an error: returns what remains to be deleted.
std::vector<std::filesystem::path> keep_newest(const std::filesystem::path& root, const Keep& keep,
                                               FileSystem& files = FileSystem::system());

// Deletes the folder of a save that was cut short, as far as possible; a checkpoint, which has a manifest, stays.
void discard_unfinished(const std::filesystem::path& folder, FileSystem& files = FileSystem::system());

}  // namespace herd
