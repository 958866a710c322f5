// Saves checkpoints while training goes on: save() copies this rank's tensors to memory and returns; a thread of its
// own then writes the shard, makes it durable, meets the other ranks, and rank 0 writes the manifest last. Every
// element of a global tensor comes from exactly one rank: ranks with copies of it pass a range each. Files and
// their guarantees: herd/storage/checkpoint_writer.h. A failure of any rank fails the save on all of them: wait() and
// the next save() throw it (kStorage names file, bytes needed and free, and the rank); earlier checkpoints stay.
// The copy takes as many bytes of host memory as the tensors and is kept from save to save.
// Threads: one caller; failed() from any.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "herd/checkpoint/named_tensor.h"
#include "herd/checkpoint/peers.h"
#include "herd/storage/file_system.h"
#include "herd/storage/manifest.h"

namespace herd {

struct CheckpointState {
  int64_t step = 0;                               // optimizer steps done
  int64_t samples = 0;                            // global samples consumed
  std::string config = {};                        // the run file, resolved
  std::map<std::string, std::string> notes = {};  // algorithms, topology, threads: what bits depend on
  // Small files of rank 0 that lie beside the shards, name -> bytes: a tokenizer.
  std::shared_ptr<const std::map<std::string, std::string>> files = {};
};

class CheckpointSaver {
 public:
  struct Options {
    std::filesystem::path root;  // folder of the run's checkpoints
    int keep = 2;                // newest checkpoints of the run that stay
    std::string herd_version = {};
    std::string run = {};  // id, which each checkpoint says; keep deletes none that says another
  };
  // Borrows `peers` and `files`.
  CheckpointSaver(Options options, CheckpointPeers& peers, FileSystem& files = FileSystem::system());
  ~CheckpointSaver();  // waits; a failure that nobody has seen is logged
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Waits for the save before it, copies, and writes behind. Collective.
  void save(CheckpointState state, const std::vector<NamedTensor>& tensors);
  void wait();  // until the last save is durable
  // Whether the save in flight has failed here, so that wait() throws at once: ask at every step. Peers may see it
  // later.
  bool failed() const { return failed_.load(); }
  // The folder of the last save that wait() saw complete.
  const std::filesystem::path& last_saved() const { return last_saved_; }

  struct Times {
    int saves = 0;        // that wait() saw complete
    double stood_ms = 0;  // the caller was in save(): for the save before, and to copy
    double wrote_ms = 0;  // a save took behind it
  };
  const Times& times() const { return times_; }
  int64_t snapshot_bytes() const;  // of host memory

 private:
  struct Snapshot;
  void write(const CheckpointState& state);
  std::string write_part(const std::filesystem::path& folder);
  void commit(const std::filesystem::path& folder, const CheckpointState& state, const std::vector<std::string>& parts);

  Options options_;
  CheckpointPeers& peers_;
  FileSystem& files_;
  std::unique_ptr<Snapshot> snapshot_;
  std::thread writer_;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
  Times times_;
  double writing_ms_ = 0;
  std::filesystem::path last_saved_, written_;
};

}  // namespace herd
