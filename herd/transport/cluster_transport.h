// The transport of a job on several hosts joins ranks of one host by shared memory, and all others by frames (wire.h).
// One sleep waits for the host's doorbell, pidfds of its ranks, and the network.
// A rank on another host is gone when its connection has ended. It is silent while it leaves kAskBoard
// unanswered, the frame that asks for its progress (wire.h). A rank's progress thread answers whatever the rank
// computes. So a silent rank is stopped, cut off, or gets no core.
// Threads: as any Transport.
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
  std::string secret = {};        // secret of the job, 32 bytes: authenticates frames
  std::string job = {};           // differs between jobs, and between restarts of one job
  WireKind kind = WireKind::kTcp;
  WireOptions wire = {};  // ClusterTransport sets its key, rank and size
  std::function<std::unique_ptr<Wire>(const WireOptions&)> open_wire = {};  // opens the wire in place of `kind`; tests
  // Makes the courier among the ranks of this host; `ranks` are the transport's, and contain this one.
  std::function<std::unique_ptr<Courier>(const std::vector<Rank>& ranks, SteadyTime deadline)> courier = {};
};

class ClusterTransport final : public Transport {
 public:
  // Collective over all ranks. The destructor tells all others that this rank ends, and returns once they know.
  ClusterTransport(ClusterOptions options, std::unique_ptr<Exchange> exchange, SteadyTime deadline);
  ~ClusterTransport() override;

  std::string_view name() const override { return name_; }  // returns how ranks reach each other: "tcp", "shm+ucx"
  Rank rank() const override { return options_.rank; }
  int size() const override { return static_cast<int>(options_.host_of.size()); }
  int host_of(Rank rank) const override { return options_.host_of[static_cast<size_t>(rank)]; }
  int ranks_of_machine() const override { return ranks_of_machine_; }
  std::unique_ptr<Channel> open_channel(const std::string& key, const std::vector<Rank>& members,
                                        SteadyTime deadline) override;
  std::shared_ptr<SharedRegion> allocate(const std::string& key, const std::vector<Rank>& members, int64_t bytes,
                                         SteadyTime deadline) override;
  bool is_gone(Rank peer) override;
  PeerState state(Rank peer) override;
  std::string describe(Rank peer) override;
  void set_activity(std::string_view activity) override { local_->set_activity(activity); }
  std::string activity_of(Rank peer) override;
  void announce_sleep() override { local_->announce_sleep(); }
  void cancel_sleep() override { local_->cancel_sleep(); }
  void sleep_until(SteadyTime deadline) override;
  void wake() override { local_->wake(); }
  void yield_core(bool oversubscribed) override { local_->yield_core(oversubscribed); }
  bool needs_progress_thread() const override { return true; }
  void progress_network() override;
  void wait_for_network() override;
  void interrupt_wait() override;

  // ClusterChannel calls the next functions under mutex().
  std::mutex& mutex() { return mutex_; }
  Wire& wire() { return *wire_; }
  bool shares_host(Rank peer) const { return host_of(peer) == host_of(rank()); }
  FrameHeader stamp(Rank to, uint64_t channel, FrameKind kind) const;  // returns a header from this rank
  void add(uint64_t id, ClusterChannel& channel);                      // takes mutex() itself
  void remove(uint64_t id, uint64_t last_finished);   // `last_finished`: number of the last operation that is over
  void mark_asked(Rank peer);                         // records that this rank has sent the peer kAskBoard
  void on_activity(Rank peer, std::string activity);  // records the activity that the peer has sent
  // Moves frames and returns true, or waits at most 10 ms for a frame and returns false.
  bool progress_or_wait();

 private:
  struct EarlyFrame {  // a frame for a channel that this rank has not opened yet
    FrameHeader header;
    std::vector<std::byte> payload;
  };
  struct Peer {
    uint64_t key_to = 0, key_from = 0;  // keys that prove frames to the peer and from it (FrameHeader::key)
    std::chrono::steady_clock::time_point asked_since{};  // time of the first kAskBoard without an answer; 0 = none
    std::string activity;                                 // activity in the peer's last answer
  };
  void on_frame(const FrameHeader& header, std::span<const std::byte> payload);
  int count_ranks_of_machine(const std::vector<Rank>& everyone, SteadyTime deadline);
  std::chrono::milliseconds silent_for(Rank peer);
  // Returns the members on this host, as local_ numbers them.
  std::vector<Rank> local_members(const std::vector<Rank>& members) const;
  // Throws the first `error` of the members that is not empty, on all of them. Collective.
  void agree(const std::string& key, const std::vector<Rank>& members, const std::string& error, SteadyTime deadline);

  ClusterOptions options_;
  std::string name_;
  std::unique_ptr<Exchange> exchange_;
  std::vector<Rank> host_ranks_;  // the ranks of this host
  int ranks_of_machine_ = 1;
  std::unique_ptr<LocalTransport> local_;
  std::mutex mutex_;  // guards all members below
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<Presence> presence_;
  std::vector<Peer> peers_;  // by rank
  std::map<uint64_t, ClusterChannel*> channels_;
  std::map<uint64_t, uint64_t> closed_;  // id of a closed channel -> the last operation that it finished
  std::map<uint64_t, std::vector<EarlyFrame>> early_frames_;  // by id of the channel
  bool warned_ = false;     // true: the log has the warning about frames without the job's key
  int epoll_ = -1;          // becomes ready with the doorbell, a peer's end or the network
  int network_epoll_ = -1;  // becomes ready with the network or interrupt_
  int interrupt_ = -1;      // an eventfd that interrupt_wait() writes
};

}  // namespace herd::transport
