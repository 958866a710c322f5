#include "herd/storage/run_folder.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "herd/base/error.h"
#include "herd/base/printable.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/checkpoint_folder.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/file_system.h"
#include "herd/storage/readable_file.h"
#include "herd/storage/run_id.h"

namespace herd {
namespace {

namespace fs = std::filesystem;

constexpr char kCheckpoints[] = "checkpoints", kMetrics[] = "metrics.jsonl";
constexpr char kSetAside[] = "set_aside";

// A run has these files and folders, which are moved in this order. Checkpoints come last, since they name the run.
constexpr const char* kRunEntries[] = {"config.toml", "cluster.toml",         "trace.json", "report.html",
                                       kMetrics,      "predicted_trace.json", "run.json",   kCheckpoints};

// Returns the folder of the run's checkpoints. Throws kStorage if it is a link.
fs::path checkpoints_of(const fs::path& folder) {
  const fs::path checkpoints = folder / kCheckpoints;
  if (is_link(checkpoints, FileSystem(folder))) {
    throw Error(Code::kStorage, checkpoints.string() +
                                    " is a link, and none is followed below a run's folder\n  fix: a folder in its "
                                    "place; the run's folder and log.dir may be links");
  }
  return checkpoints;
}

// Returns the id of the folder's run, or "" if it has none.
std::string id_of(const fs::path& folder) {
  if (const std::string run = read_run_record(folder).run; !run.empty()) return run;
  for (const FoundCheckpoint& checkpoint : list_checkpoints(checkpoints_of(folder))) {
    if (const auto run = run_of_checkpoint(checkpoint.folder); run && !run->empty()) return *run;
  }
  return {};
}

std::string describe_run(const fs::path& folder) {
  const auto found = list_checkpoints(checkpoints_of(folder));
  const std::string id = id_of(folder);
  std::string text = id.empty() ? "a run without an id" : "run " + printable(id);
  if (found.empty()) return text + " with metrics and no checkpoint";
  return text + " with " + std::to_string(found.size()) + (found.size() == 1 ? " checkpoint" : " checkpoints") +
         ", the newest of step " + std::to_string(found.front().step);
}

[[noreturn]] void refuse_used(const fs::path& folder, const std::string& resume) {
  throw Error(Code::kBadConfig,
              "checkpoint.resume = \"" + resume + "\" starts a new run, which needs a folder of its own, but " +
                  folder.string() + " holds " + describe_run(folder) +
                  "\n  fix: another log.name; checkpoint.resume = \"auto\" to go on with the run that is there; or "
                  "checkpoint.used_folder = \"set_aside\" to move it to " +
                  (folder / kSetAside).string());
}

// Resumes the folder's run if it has a checkpoint there, else the run whose checkpoints lie there.
std::optional<RunStart> resume_run(const fs::path& folder, const RunRecord& record) {
  RunStart start;
  auto found = newest_whole_checkpoint(checkpoints_of(folder), start.passed_over, record.run);
  if (!found && start.passed_over.empty()) found = newest_whole_checkpoint(checkpoints_of(folder), start.passed_over);
  if (!found && start.passed_over.empty()) return {};
  if (!found) {
    throw Error(Code::kCorruptFile,
                start.passed_over.front() + "\n  none of the checkpoints in " + (folder / kCheckpoints).string() +
                    " is whole, so the run can only begin again\n  fix: checkpoint.resume = \"none\" with another "
                    "log.name or checkpoint.used_folder = \"set_aside\"");
  }
  start.checkpoint = found->folder;
  start.run = run_of_checkpoint(found->folder).value_or("");
  if (start.run.empty()) start.run = record.run;
  if (start.run.empty()) start.run = new_run_id();
  if (start.run == record.run) start.began_from = record.began_from;
  return start;
}

bool is_newest_of(const fs::path& folder, const fs::path& checkpoint) {
  std::vector<std::string> ignored;
  const auto newest = newest_whole_checkpoint(checkpoints_of(folder), ignored);
  std::error_code failed;
  return newest && fs::equivalent(newest->folder, checkpoint, failed);
}

void move(const fs::path& from, const fs::path& to, FileSystem& files) {
  if (const int result = files.rename(from, to); result < 0)
    throw_errno(Code::kStorage, "move " + from.string() + " to " + to.string(), -result);
}

fs::path without_links(const fs::path& path) {
  std::error_code failed;
  const fs::path found = fs::weakly_canonical(path, failed);
  if (failed) throw_errno(Code::kStorage, "follow the links of " + path.string(), failed.value());
  return found;
}

// Returns a folder to set the run aside in, one that holds none of the names that are moved there.
fs::path new_aside(const fs::path& folder, const FileSystem& files) {
  const std::string id = id_of(folder);
  const std::string base = id.empty() ? "unnamed" : id;
  const auto clashes = [&](const fs::path& aside) {
    for (const char* name : kRunEntries) {
      if (is_taken(folder / name, files) && is_taken(aside / name, files)) return true;
    }
    return false;
  };
  fs::path aside = folder / kSetAside / base;
  for (int count = 2; clashes(aside); ++count) aside = folder / kSetAside / (base + "-" + std::to_string(count));
  return aside;
}

}  // namespace

RunRecord read_run_record(const fs::path& folder) {
  const fs::path path = folder / "run.json";
  const FileSystem files(folder);
  const FileKind kind = kind_of(path, files);
  RunRecord record;
  if (kind == FileKind::kNothing) return record;
  if (kind != FileKind::kFile) {
    const std::string what = kind == FileKind::kFolder ? "a folder" : is_link(path, files) ? "a link" : "no file";
    throw Error(Code::kStorage, "run.json is a file of the run, but " + path.string() + " is " + what +
                                    "\n  fix: move it away, or take another log.name");
  }
  const auto json = nlohmann::json::parse(ReadableFile(path, files).text(), nullptr, false);
  if (!json.is_object()) return record;
  const auto text = [&](const char* name, std::string& value) {
    if (const auto found = json.find(name); found != json.end() && found->is_string()) value = *found;
  };
  text("run", record.run);
  text("job", record.job);
  text("began", record.began_from);
  if (!record.run.empty() && !is_run_id(record.run)) {
    throw Error(Code::kCorruptFile, path.string() + " names its run \"" + printable(record.run) + "\", but " +
                                        kRunIdRule + "\n  fix: move that file away, or take another log.name");
  }
  if (const auto ended = json.find("ended_at"); ended != json.end() && ended->is_number_integer())
    record.ended_at = *ended;
  return record;
}

bool is_used(const fs::path& folder) {
  if (!list_checkpoints(checkpoints_of(folder)).empty()) return true;
  const FileSystem files(folder);
  if (!is_taken(folder / kMetrics, files)) return false;
  const std::string text = ReadableFile(folder / kMetrics, files).text();
  const size_t header = text.find('\n');
  return header != text.npos && header + 1 < text.size() && text[header + 1] != '\n';
}

bool is_finished(const fs::path& folder, int64_t steps_done, int64_t steps) {
  return steps_done > steps || (steps_done == steps && read_run_record(folder).ended_at == steps);
}

RunStart plan_start(const fs::path& folder, const StartRequest& request) {
  const RunRecord record = read_run_record(folder);
  const bool restarted = request.restart > 0 && !request.job.empty() && record.job == request.job;
  const bool is_auto = request.resume == "auto";
  if (restarted || is_auto) {
    if (auto start = resume_run(folder, record)) return *start;
  }
  RunStart start{.run = record.run.empty() || !(restarted || is_auto) ? new_run_id() : record.run, .checkpoint = {}};
  if (restarted && !record.began_from.empty()) {
    start.checkpoint = resolve_checkpoint(record.began_from);
  } else if (!is_auto && request.resume != "none") {
    start.checkpoint = resolve_checkpoint(request.resume);
    if (!restarted && is_newest_of(folder, *start.checkpoint)) return *resume_run(folder, record);
  }
  if (start.checkpoint) start.began_from = start.checkpoint->string();
  if (restarted || is_auto || !is_used(folder)) return start;
  if (request.used == UsedFolder::kRefuse) refuse_used(folder, request.resume);
  start.sets_aside = true;
  return start;
}

fs::path set_aside(const fs::path& folder) {
  FileSystem files(folder);
  const fs::path aside = new_aside(folder, files);
  make_folders(aside, files);
  for (const char* name : kRunEntries) {
    if (is_taken(folder / name, files)) move(folder / name, aside / name, files);
  }
  for (const fs::path& changed : {aside, folder}) {
    if (const int result = files.sync_folder(changed); result < 0)
      throw_errno(Code::kStorage, "sync the folder " + changed.string(), -result);
  }
  return aside;
}

fs::path path_after_set_aside(const fs::path& path, const fs::path& folder, const fs::path& aside) {
  const fs::path inside = without_links(path).lexically_relative(without_links(folder));
  return inside.empty() || *inside.begin() == ".." ? path : aside / inside;
}

}  // namespace herd
