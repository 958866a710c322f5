// The transport among ranks that map each other's memory, over any Courier, joins processes (shm) or threads (inproc).
// Threads: as any Transport.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "herd/transport/activity.h"
#include "herd/transport/core_spread.h"
#include "herd/transport/courier.h"
#include "herd/transport/doorbell.h"
#include "herd/transport/local_channel.h"
#include "herd/transport/transport.h"

namespace herd::transport {

// Says that two ranks ask for shared memory of different sizes, given as text.
std::string sizes_differ(const std::string& key, Rank a, const std::string& bytes_a, Rank b,
                         const std::string& bytes_b);

class LocalTransport final : public Transport {
 public:
  // Collective over all ranks of the courier.
  LocalTransport(std::unique_ptr<Courier> courier, SteadyTime deadline);
  ~LocalTransport() override;

  std::string_view name() const override { return courier_->name(); }
  Rank rank() const override { return courier_->rank(); }
  int size() const override { return courier_->size(); }
  std::unique_ptr<Channel> open_channel(const std::string& key, const std::vector<Rank>& members,
                                        SteadyTime deadline) override;
  // Opens the same as a LocalChannel, for ClusterTransport.
  std::unique_ptr<LocalChannel> open_local(const std::string& key, const std::vector<Rank>& members,
                                           SteadyTime deadline);
  std::shared_ptr<SharedRegion> allocate(const std::string& key, const std::vector<Rank>& members, int64_t bytes,
                                         SteadyTime deadline) override;
  bool is_gone(Rank peer) override;
  PeerState state(Rank peer) override { return courier_->state(peer); }
  std::string describe(Rank peer) override { return courier_->describe(peer); }
  void set_activity(std::string_view activity) override;
  std::string activity_of(Rank peer) override;
  void announce_sleep() override {
    spread_.leave();
    own_doorbell().announce_sleep();
  }
  void cancel_sleep() override { own_doorbell().cancel_sleep(); }
  void sleep_until(SteadyTime deadline) override;
  void wake() override { own_doorbell().wake(); }
  void yield_core(bool oversubscribed) override;
  int descriptor() const { return epoll_; }  // becomes readable when sleep_until() would return

 private:
  // Holds what peers read of one rank, in shared memory.
  struct SharedState {
    DoorbellWord doorbell;
    alignas(64) ActivityBoard activity;
  };
  SharedState& shared_state(Rank peer);
  DoorbellWord& doorbell_word(Rank peer) { return shared_state(peer).doorbell; }
  Doorbell& own_doorbell() { return doorbells_[static_cast<size_t>(rank())]; }
  // As allocate(), but only the first real_bytes of each member's memory are real; its owner commits the rest.
  std::shared_ptr<SharedRegion> allocate(const std::string& key, const std::vector<Rank>& members, int64_t bytes,
                                         int64_t real_bytes, SteadyTime deadline);
  void share_doorbells(SteadyTime deadline);
  void watch_peers();

  std::unique_ptr<Courier> courier_;
  std::shared_ptr<SharedRegion> shared_states_;
  std::mutex activity_mutex_;
  std::vector<Doorbell> doorbells_;  // by rank
  CoreSpread spread_;
  uint32_t yields_ = 0;
  std::vector<int> descriptors_;         // of the doorbells, owned
  std::vector<std::atomic<bool>> gone_;  // by rank
  int epoll_ = -1;
};

}  // namespace herd::transport
