// Defines what a start finds in a run's folder and may do with it. A folder is of one run at a time: run.json names it,
// and so do its metrics and its checkpoints. Threads: one at a time; the caller owns the folder (run_lock.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace herd {

// Of run.json (docs/formats/run.md); members are empty where the file is not there or does not say. Throws kStorage
// where a folder has its name.
struct RunRecord {
  std::string run;    // id
  std::string job;    // that wrote it last
  std::string began;  // the checkpoint that the run began with; empty: none
};
RunRecord read_run_record(const std::filesystem::path& folder);

// Whether there are checkpoints, or metrics of a step.
bool is_used(const std::filesystem::path& folder);

enum class UsedFolder { kRefuse, kSetAside };  // by a new run

struct StartRequest {
  std::string resume = "auto";  // auto, none, or a checkpoint, a folder of some, or a run's folder
  UsedFolder used = UsedFolder::kRefuse;
  std::string job = {};  // who starts: the same for all attempts of one job; empty = nobody can tell
  int restart = 0;       // attempts of that job before this one
};

struct RunStart {
  std::string run;                                  // id
  std::optional<std::filesystem::path> checkpoint;  // what to resume from
  bool sets_aside = false;                          // set_aside() comes before anything is written
  std::string began = {};                           // the checkpoint that the run began with; empty: none
  std::vector<std::string> passed_over = {};        // what is wrong with newer checkpoints
};

// How a run starts:
//   auto        goes on with the folder's run at its newest whole checkpoint; from the beginning where there is none
//   none        a new run, which needs a folder that is not used, or sets what is there aside
//   CHECKPOINT  the same, but beginning with that checkpoint; the newest whole one of the folder itself is as auto
//   a restart   goes on with the run that an earlier attempt of this job began, whatever resume says
// Changes nothing. Throws kBadConfig where a new run finds a used folder, kCorruptFile where a run would begin again
// since none of its checkpoints is whole, and as resolve_checkpoint().
RunStart plan_start(const std::filesystem::path& folder, const StartRequest& request);

// Moves what is of the folder's run to folder/set_aside/<its id>, which is then a run's folder of its own; logs stay.
// A stop at any point leaves a folder of which the rest can be set aside. Returns the new folder. Throws kStorage.
std::filesystem::path set_aside(const std::filesystem::path& folder);

// Where `path`, which was in `folder` before it was set aside, is afterwards; any other path as it is.
std::filesystem::path path_after_set_aside(const std::filesystem::path& path, const std::filesystem::path& folder,
                                           const std::filesystem::path& aside);

}  // namespace herd
