// The folder of a run's checkpoints: which there are, which one to resume from, which to delete.
// A checkpoint is a folder step-<step> or step-<step>-<attempt> with a manifest; a folder without one is a save that
// was cut short, and is never read. Threads: one at a time.
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

std::string checkpoint_folder_name(int64_t step, int attempt = 1);  // "step-00000100", "step-00000100-2"

// Folders with a manifest, newest first; none if `root` is not there. The manifest itself is not read. Here and below:
// throws kStorage where the system does not let `root` be listed, for then nobody knows what is in it.
std::vector<FoundCheckpoint> list_checkpoints(const std::filesystem::path& root);

// The id of the run that saved a checkpoint, "" where it does not say; nothing if its manifest can't be read.
std::optional<std::string> run_of_checkpoint(const std::filesystem::path& folder);

// Whether there is one whose manifest and lengths hold, of this run or of one that does not say.
bool holds_checkpoint(const std::filesystem::path& root, const std::string& run = "");

// The newest checkpoint whose manifest and checksums all hold. Appends to `passed_over` what is wrong with each newer
// one. With `run`, those that say that they are of another run are left out.
std::optional<FoundCheckpoint> newest_whole_checkpoint(const std::filesystem::path& root,
                                                       std::vector<std::string>& passed_over,
                                                       const std::string& run = "");

// `path` itself if it is a checkpoint, else the newest whole one in it or in its folder "checkpoints". Throws
// kBadConfig if there is none; kCorruptFile if there are only broken ones, naming what is wrong with the newest.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

struct Keep {
  int newest = 2;                      // >= 1
  std::string run = {};                // whose checkpoints; those that say that they are of another run stay
  std::filesystem::path written = {};  // the one just written: it stays and counts, whatever steps others are of
};

// Deletes all but the newest checkpoints whose manifest and lengths hold, and saves cut short that are older than
// those. Broken ones don't count, so the last good one is never deleted. A checkpoint loses its manifest first: one
// that is half deleted is no checkpoint. Failing to delete is not an error: returns what remains to be deleted.
std::vector<std::filesystem::path> keep_newest(const std::filesystem::path& root, const Keep& keep,
                                               FileSystem& files = FileSystem::system());

// Deletes the folder of a save that was cut short, as far as that is possible; a checkpoint, which has a manifest,
// stays.
void discard_unfinished(const std::filesystem::path& folder, FileSystem& files = FileSystem::system());

}  // namespace herd
