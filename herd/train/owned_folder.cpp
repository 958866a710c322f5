#include "herd/train/owned_folder.h"

#include "herd/base/log.h"
#include "herd/storage/temporary_name.h"
#include "herd/train/shared_error.h"
#include "herd/train/shared_folder.h"

namespace herd::train {

namespace fs = std::filesystem;

namespace {

// Returns "id\ncheckpoint"; the checkpoint is empty where there is none.
std::string text_of(const RunStart& start) {
  return start.run + "\n" + (start.checkpoint ? start.checkpoint->string() : "");
}

void read_text(const std::string& text, RunStart& start) {
  const size_t line = text.find('\n');
  start.run = text.substr(0, line);
  if (const std::string checkpoint = text.substr(line + 1); !checkpoint.empty()) start.checkpoint = checkpoint;
}

}  // namespace

OwnedFolder::OwnedFolder(const spec::RunFile& run, CheckpointPeers& peers, const JobAttempt& attempt)
    : path_(fs::path(run.log.dir) / run.log.name), files_(path_), attempt_(attempt) {
  const std::string text = on_root(peers, [&] {
    lock_ = std::make_unique<RunLock>(path_);
    const bool sets_aside = run.checkpoint.used_folder == "set_aside";
    start_ = plan_start(path_, {.resume = run.checkpoint.resume,
                                .used = sets_aside ? UsedFolder::kSetAside : UsedFolder::kRefuse,
                                .job = attempt.job,
                                .restart = attempt.restarts_before});
    for (const std::string& reason : start_.passed_over) log_warning("passed over a broken checkpoint: " + reason);
    return text_of(start_);
  });
  if (peers.rank() != 0) read_text(text, start_);
  prove_shared_folder(path_, peers);
}

void OwnedFolder::take_over() {
  remove_stale_temporaries(path_, files_);  // left by a process that was killed while it wrote a file of the run
  if (!start_.sets_aside) return;
  const fs::path aside = set_aside(path_);
  start_.sets_aside = false;
  if (!start_.began_from.empty()) start_.began_from = path_after_set_aside(start_.began_from, path_, aside).string();
  log_info("the run that was in " + path_.string() + " is in " + aside.string() + " now");
}

void OwnedFolder::check() const { lock_->check(); }

}  // namespace herd::train
