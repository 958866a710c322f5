// Defines how the ranks that write one checkpoint meet: each exchanges a few short texts with rank 0. Collective: every
// rank makes the same calls in the same order.   Threads: one at a time, the thread that writes and not the one that
// trains.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "herd/base/ids.h"
#include "herd/base/store.h"

namespace herd {

class CheckpointPeers {
 public:
  virtual ~CheckpointPeers() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Returns rank 0's text on every rank.
  virtual std::string broadcast_from_root(const std::string& text) = 0;
  // Returns every rank's text on rank 0, in rank order, and nothing elsewhere.
  virtual std::vector<std::string> gather_to_root(const std::string& text) = 0;
  // Ends the calls above on all ranks, where peers can be reached at any time; no later call succeeds. The default does
  // nothing: calls of StorePeers end with their timeout. Any thread.
  virtual void abandon(const std::string& reason) { static_cast<void>(reason); }
};

// Serves a rank that writes its checkpoints alone.
class OnePeer final : public CheckpointPeers {
 public:
  Rank rank() const override { return 0; }
  int size() const override { return 1; }
  std::string broadcast_from_root(const std::string& text) override { return text; }
  std::vector<std::string> gather_to_root(const std::string& text) override { return {text}; }
};

// Exchanges texts over the job's store, which it borrows. Its keys begin with `prefix`, which must be new for each use
// of the store, and are erased when read. Throws kTimeout after `timeout`, kPeerLost or kAborted as the store does.
class StorePeers final : public CheckpointPeers {
 public:
  StorePeers(Store& store, Rank rank, int size, std::string prefix, std::chrono::milliseconds timeout);
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string broadcast_from_root(const std::string& text) override;
  std::vector<std::string> gather_to_root(const std::string& text) override;

 private:
  SteadyTime deadline() const { return std::chrono::steady_clock::now() + timeout_; }

  Store& store_;
  Rank rank_;
  int size_;
  std::string prefix_;
  std::chrono::milliseconds timeout_;
  int64_t exchange_ = 0;
};

}  // namespace herd
