// Saves checkpoints while training goes on: save() copies this rank's tensors to memory and returns. A thread of its
// own then writes the shard, makes it durable, meets the other ranks, and rank 0 writes the manifest last. Every
// element of a global tensor comes from exactly one rank: ranks with copies of it pass a range each. Files and
// their guarantees: herd/storage/checkpoint_writer.h. A failure of any rank fails the save on all of them.
// Where the system refuses to write (kStorage), the save is tried again from its copy, with a warning and after pauses:
//   while an older checkpoint of the run stands   until it succeeds, or the next save() takes its place
//   while none does                               at most Retries::max_attempts attempts in all
//   once wait() was called                        at most Retries::max_attempts more
// Once the attempts are used up, and after any other failure, wait() and the next save() throw, and failed() is true,
// on all ranks. The kStorage error names the file, the bytes needed and free, and the rank. Earlier checkpoints stay.
// The copy takes as many bytes of host memory as the tensors and is kept from save to save. Threads: one caller;
// failed() from any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/checkpoint/peers.h"
#include "herd/storage/file_system.h"
#include "herd/storage/manifest.h"
#include "herd/storage/small_file.h"

namespace herd {

struct CheckpointState {
  int64_t step = 0;         // optimizer steps that were made
  int64_t samples = 0;      // samples that all ranks have trained on
  std::string config = {};  // the run file with every default filled in
  // What bits depend on: algorithms, topology, threads.
  std::map<std::string, std::string> notes = {};
  std::map<std::string, std::string> shard_notes = {};  // what this rank's shard states of itself
  // Small files by name that rank 0 puts beside the shards, such as a tokenizer.
  std::shared_ptr<const std::map<std::string, SmallFile>> extra_files = {};
};

class CheckpointSaver {
 public:
  struct Retries {
    int max_attempts = 4;  // attempts at a save that must succeed
    // Pauses double from first_pause, up to longest_pause.
    std::chrono::milliseconds first_pause{1000}, longest_pause{60'000};
  };
  struct Options {
    std::filesystem::path root;  // folder of the run's checkpoints
    int keep = 2;                // of the run; older checkpoints are deleted
    std::string herd_version = {};
    std::string run = {};  // id, which each checkpoint notes; `keep` deletes none that notes another
    Retries retries = {};
  };
  // Borrows `peers` and `file_system`.
  CheckpointSaver(Options options, CheckpointPeers& peers, FileSystem& file_system = FileSystem::system());
  ~CheckpointSaver();  // waits, but for no further attempt; a failure that nobody has seen is logged
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Waits for the save before it, copies, and writes in the background. Collective. A save that has failed so far,
  // while an older checkpoint stands, is given up for the new one.
  void save(CheckpointState state, const std::vector<NamedTensor>& tensors);
  void wait();  // returns when the last save is durable
  // Tells whether the save in flight has failed here for good, so that wait() throws at once; callers ask at every
  // step. Peers may learn it later.
  bool failed() const { return failed_.load(); }
  // The folder of the last save that wait() saw complete.
  const std::filesystem::path& last_saved() const { return last_saved_; }

  struct Times {
    int saves = 0;             // saves that wait() saw complete
    double blocked_ms = 0;     // time that the caller spent in save(): it waits for the last save, then copies
    double background_ms = 0;  // time that the writer thread spent, while training went on
  };
  const Times& times() const { return times_; }
  int64_t snapshot_bytes() const;  // returns the host memory that the copy takes

 private:
  struct Snapshot;
  enum class WaitingFor { kNothing, kNextSave, kEnd, kDestruction };  // what waits for the save in flight
  void join(WaitingFor due);
  void write(const CheckpointState& state);
  std::string try_write(const CheckpointState& state);
  std::string after_failure(const CheckpointState& state, const std::string& failure);
  bool has_older() const;
  void say_failure(int64_t step, const std::string& failure, const std::string& what_follows);
  std::string write_part(const std::filesystem::path& folder, const CheckpointState& state);
  void commit(const std::filesystem::path& folder, const CheckpointState& state, const std::vector<std::string>& parts);

  Options options_;
  CheckpointPeers& peers_;
  FileSystem& files_;
  std::unique_ptr<Snapshot> snapshot_;
  std::thread writer_;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
  bool given_up_ = false;  // true: the save in flight makes way for the next one

  std::mutex mutex_;  // of the next three
  std::condition_variable changed_;
  WaitingFor waiting_for_ = WaitingFor::kNothing;
  int attempts_left_ = 0;
  // Only the writer thread uses these two; a save that succeeds sets them back.
  std::chrono::milliseconds pause_{0};                  // pause before the last attempt
  std::chrono::steady_clock::time_point last_warning_;  // time of the last warning of a failure
  Times times_;
  double writing_ms_ = 0;
  std::filesystem::path last_saved_, written_;
};

}  // namespace herd
