// The transport of a job on several hosts: ranks of one host share memory, all others send each other frames (wire.h).
// One sleep serves both: the host's doorbell, pidfds of its ranks, and the network.
//   Who is alive elsewhere: a rank is gone when its connection has ended, and silent while it leaves a question
//   unanswered; its progress thread answers whatever the rank computes, so silent means stopped, cut off or starved.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "herd/transport/courier.h"
#include "herd/transport/exchange.h"
#include "herd/transport/local_transport.h"
#include "herd/transport/presence.h"
#include "herd/transport/wire.h"

namespace herd::transport {

class ClusterChannel;

struct ClusterOptions {
  Rank rank = 0;
  std::vector<int> host_of = {};  // by rank, numbered from 0 in the order of their first ranks
  std::string secret = {};        // of the job, 32 bytes: authenticates frames
  std::string job = {};           // tells jobs, and restarts of one, apart
  WireKind kind = WireKind::kTcp;
  WireOptions wire = {};                                                    // its key, rank and size are filled in
  std::function<std::unique_ptr<Wire>(const WireOptions&)> open_wire = {};  // instead of one of `kind`
  // The courier among the ranks of this host; `ranks` are the transport's, this one among them.
  std::function<std::unique_ptr<Courier>(const std::vector<Rank>& ranks, SteadyTime deadline)> courier = {};
};

class ClusterTransport final : public Transport {
 public:
  // Collective over all ranks. The destructor tells all others that this rank ends: they know before it returns.
  ClusterTransport(ClusterOptions options, std::unique_ptr<Exchange> exchange, SteadyTime deadline);
  ~ClusterTransport() override;

  std::string_view name() const override { return name_; }  // "tcp", "shm+ucx": how ranks reach each other
  Rank rank() const override { return options_.rank; }
  int size() const override { return static_cast<int>(options_.host_of.size()); }
  int host_of(Rank rank) const override { return options_.host_of[static_cast<size_t>(rank)]; }
  int ranks_of_machine() const override { return ranks_of_machine_; }
  std::unique_ptr<Channel> open_channel(const std::string& key, const std::vector<Rank>& members,
                                        SteadyTime deadline) override;
  std::shared_ptr<SharedRegion> allocate(const std::string& key, const std::vector<Rank>& members, int64_t bytes,
                                         SteadyTime deadline) override;
  bool gone(Rank peer) override;
  PeerState state(Rank peer) override;
  std::string describe(Rank peer) override;
  void show(std::string_view activity) override { local_->show(activity); }
  std::string shown(Rank peer) override;
  void announce_sleep() override { local_->announce_sleep(); }
  void cancel_sleep() override { local_->cancel_sleep(); }
  void sleep_until(SteadyTime deadline) override;
  void wake() override { local_->wake(); }
  void offer_core(bool oversubscribed) override { local_->offer_core(oversubscribed); }
  bool needs_care() const override { return true; }
  void care() override;
  void rest() override;
  void end_rest() override;

  // For ClusterChannel, under mutex().
  std::mutex& mutex() { return mutex_; }
  Wire& wire() { return *wire_; }
  bool shares_host(Rank peer) const { return host_of(peer) == host_of(rank()); }
  FrameHeader stamp(Rank to, uint64_t channel, FrameKind kind) const;
  void add(uint64_t id, ClusterChannel& channel);  // takes mutex() itself
  void remove(uint64_t id, uint64_t finished);
  void asked(Rank peer);
  void hear_shown(Rank peer, std::string activity);
  bool move_or_rest();  // true: moved frames; else waited for some, 10 ms at most

 private:
  struct Waiting {  // a frame for a channel that is not open here yet
    FrameHeader header;
    std::vector<std::byte> payload;
  };
  struct Peer {
    uint64_t key_to = 0, key_from = 0;
    std::chrono::steady_clock::time_point asked{};  // 0: it has answered since
    std::string shown;                              // as it answered last
  };
  void arrived(const FrameHeader& header, std::span<const std::byte> payload);
  int count_ranks_of_machine(const std::vector<Rank>& everyone, SteadyTime deadline);
  std::chrono::milliseconds silent_for(Rank peer);
  std::vector<Rank> here(const std::vector<Rank>& members) const;  // those on this host, as local_ numbers them
  void agree(const std::string& key, const std::vector<Rank>& members, const std::string& error, SteadyTime deadline);

  ClusterOptions options_;
  std::string name_;
  std::unique_ptr<Exchange> exchange_;
  std::vector<Rank> host_ranks_;  // of this host
  int ranks_of_machine_ = 1;
  std::unique_ptr<LocalTransport> local_;
  std::mutex mutex_;  // of all that follows
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<Presence> presence_;
  std::vector<Peer> peers_;  // by rank
  std::map<uint64_t, ClusterChannel*> channels_;
  std::map<uint64_t, uint64_t> closed_;  // to the last operation finished
  std::map<uint64_t, std::vector<Waiting>> waiting_;
  bool warned_ = false;
  int epoll_ = -1, rest_epoll_ = -1, rest_bell_ = -1;
};

}  // namespace herd::transport
