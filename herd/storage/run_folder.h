// Decides what a start finds in a run's folder and may do with it. A folder belongs to one run at a time: run.json
// names it, and so do its metrics and its checkpoints. The folder may be hostile: nothing outside it is changed, and no
// link below it is followed. Its own path may lead over links. Threads: one at a time; the caller owns the folder
// (run_lock.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace herd {

// Holds run.json (docs/formats/run.md); members are empty where the file is missing or does not say.
struct RunRecord {
  std::string run;         // id of the run
  std::string job;         // job that wrote the file last
  std::string began_from;  // checkpoint that the run began with; empty: none
  int64_t ended_at = 0;    // steps done when its last start had written all of its files; 0 = it has not, or no record
};
// Throws kStorage where something else has the file's name, kCorruptFile where its run is no id (run_id.h).
RunRecord read_run_record(const std::filesystem::path& folder);

// Tells whether there are checkpoints, or metrics of a step.
bool is_used(const std::filesystem::path& folder);

// Tells whether a run that has saved `steps_done` steps has nothing left to do: it is past the last step, or at the
// last step and its record says that it ended there.
bool is_finished(const std::filesystem::path& folder, int64_t steps_done, int64_t steps);

enum class UsedFolder { kRefuse, kSetAside };  // what a new run does with a used folder

struct StartRequest {
  std::string resume = "auto";  // auto, none, or a checkpoint, a folder of checkpoints, or a run's folder
  UsedFolder used = UsedFolder::kRefuse;
  std::string job = {};  // id of the job that starts, the same for all its attempts; empty = unknown
  int restart = 0;       // attempts of that job before this one
};

struct RunStart {
  std::string run;                                  // id of the run
  std::optional<std::filesystem::path> checkpoint;  // checkpoint to resume from
  bool sets_aside = false;                          // true: call set_aside() before anything is written
  std::string began_from = {};                      // checkpoint that the run began with; empty: none
  std::vector<std::string> passed_over = {};        // what is wrong with newer checkpoints, which were left out
  bool goes_on() const { return checkpoint && !begins_with_checkpoint(); }
  bool begins_with_checkpoint() const { return checkpoint && checkpoint->string() == began_from; }  // of another run
};

// Plans how a run starts:
//   auto        goes on with the folder's run at its newest whole checkpoint; from the beginning where there is none
//   none        begins a new run, which needs a folder that is not used, or sets what is there aside
//   CHECKPOINT  begins a new run as `none` does, with that checkpoint; to name the folder's own newest whole one is the
//               same as auto
//   a restart   goes on with the run that an earlier attempt of this job began, whatever resume says
// It changes nothing. Throws kBadConfig where a new run finds a used folder. Throws kCorruptFile where a run would
// begin again since none of its checkpoints is whole, and as resolve_checkpoint().
RunStart plan_start(const std::filesystem::path& folder, const StartRequest& request);

// Moves the files of the folder's run to folder/set_aside/<its id>, which is then a run's folder of its own; logs stay.
// After a stop at any point the rest can still be set aside. Returns the new folder. Throws kStorage.
std::filesystem::path set_aside(const std::filesystem::path& folder);

// Returns where `path`, which was in `folder` before it was set aside, is afterwards; any other path as it is.
std::filesystem::path path_after_set_aside(const std::filesystem::path& path, const std::filesystem::path& folder,
                                           const std::filesystem::path& aside);

}  // namespace herd
