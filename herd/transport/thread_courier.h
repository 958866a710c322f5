// The courier of ranks that are threads of one process hands parcels over in memory. Threads: any.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "herd/transport/courier.h"

namespace herd::transport {

// Holds the parcels and states of one world's threads.
class ThreadHub {
 public:
  explicit ThreadHub(int num_ranks) : states_(static_cast<size_t>(num_ranks), PeerState::kAlive) {}

 private:
  friend class ThreadCourier;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<Rank, Rank, std::string>, Parcel> parcels_;  // (from, to, key)
  std::vector<PeerState> states_;
};

class ThreadCourier final : public Courier {
 public:
  ThreadCourier(std::shared_ptr<ThreadHub> hub, Rank rank) : hub_(std::move(hub)), rank_(rank) {}
  ~ThreadCourier() override;  // its peers take the rank for gone
  std::string_view name() const override { return "inproc"; }
  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->states_.size()); }
  void send(Rank to, const std::string& key, const Parcel& parcel) override;
  Parcel receive(Rank from, const std::string& key, SteadyTime deadline) override;
  PeerState state(Rank peer) override;
  std::string describe(Rank peer) override;
  int exit_descriptor(Rank) override { return -1; }
  uint32_t exit_events(Rank) override { return 0; }

 private:
  std::shared_ptr<ThreadHub> hub_;
  Rank rank_;
};

}  // namespace herd::transport
