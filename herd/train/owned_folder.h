// A run's folder as its ranks share it: rank 0 owns it for as long as this exists (storage/run_lock.h), and knows which
// run it is of and where that one starts (storage/run_folder.h). The other ranks know what rank 0 does.
// Threads: one.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "herd/checkpoint/peers.h"
#include "herd/spec/run_file.h"
#include "herd/storage/run_folder.h"
#include "herd/storage/run_lock.h"

namespace herd::train {

// Which start of which job this process is of.
struct JobAttempt {
  std::string job = {};  // the same for all its restarts; empty = nobody can tell
  int restart = 0;       // starts before this one
  std::optional<std::chrono::steady_clock::time_point> began = {};  // when the job's first start did; empty = now
};

class OwnedFolder {
 public:
  // Collective. Borrows `peers`. Throws the same error on every rank: where another job owns the folder, where not all
  // ranks write into the one that rank 0 sees, and as plan_start(). Leaves nothing but the lock.
  OwnedFolder(const spec::RunFile& run, CheckpointPeers& peers, const JobAttempt& attempt);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  const RunStart& start() const { return start_; }
  const std::string& job() const { return attempt_.job; }

  // Of rank 0, when everything else is accepted: sets another run aside if start() says so.
  void take_over();
  // Of rank 0: throws kAborted if the folder is another job's by now.
  void check() const;

 private:
  const std::filesystem::path path_;
  const JobAttempt attempt_;
  std::unique_ptr<RunLock> lock_;  // of rank 0
  RunStart start_;
};

}  // namespace herd::train
