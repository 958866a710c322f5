// Shares a run's folder among its ranks: rank 0 owns it for as long as this object exists (storage/run_lock.h). The
// object knows which run the folder belongs to, and where that run starts (storage/run_folder.h); the other ranks learn
// that from rank 0.
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

// Tells which start of which job this process belongs to.
struct JobAttempt {
  std::string job = {};     // id that all restarts share; empty = unknown
  int restarts_before = 0;  // starts of the job before this one
  bool survives = false;    // the job goes on without ranks that fail, where the run can
  // Time of the job's first start; empty = now.
  std::optional<std::chrono::steady_clock::time_point> job_started = {};
  // File that is told what the step will hold at its peak: a launcher shows it where the kernel ends the rank for want
  // of memory. Empty = none.
  std::string memory_table = {};
};

class OwnedFolder {
 public:
  // Collective. Borrows `peers`. Throws the same error on every rank: kBadConfig where another job owns the folder, or
  // where some rank's files do not reach rank 0's folder; else what plan_start() throws. Until take_over() it leaves
  // nothing in the folder but the lock.
  OwnedFolder(const spec::RunFile& run, CheckpointPeers& peers, const JobAttempt& attempt);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  FileSystem& files() { return files_; }  // for all that is written below path()
  const RunStart& start() const { return start_; }
  const std::string& job() const { return attempt_.job; }

  // Rank 0 calls it when everything else is accepted: it sets another run aside if start() says so.
  void take_over();
  // Rank 0 calls it; throws kAborted if another job owns the folder by now.
  void check() const;

 private:
  const std::filesystem::path path_;
  FileSystem files_;  // of path_
  const JobAttempt attempt_;
  std::unique_ptr<RunLock> lock_;  // rank 0 only
  RunStart start_;
};

}  // namespace herd::train
