// Defines how the ranks that write one checkpoint meet: a few short texts between each rank and rank 0. Collective:
// every rank makes the same calls in the same order, from one thread at a time (the thread that writes behind, not the
// training one).
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
  virtual std::string broadcast_from_root(const std::string& text) = 0;  // rank 0's text, on every rank
  virtual std::vector<std::string> gather_to_root(
      const std::string& text) = 0;  // every rank's text, on rank 0; else empty
  // Ends what waits in the calls above, on all ranks, from any thread: no later call succeeds.
  virtual void abandon(const std::string&) {}
};

class OnePeer final : public CheckpointPeers {
 public:
  Rank rank() const override { return 0; }
  int size() const override { return 1; }
  std::string broadcast_from_root(const std::string& text) override { return text; }
  std::vector<std::string> gather_to_root(const std::string& text) override { return {text}; }
};

// Over the job's store; borrows it. Keys begin with `prefix`, which must be new for each use of the store, and are
// erased when read. Throws kTimeout after `timeout`, kPeerLost or kAborted as the store does.
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
