// The courier of ranks that are processes of one host has one connected socket per pair. Shared memory and doorbells
// travel as descriptors (SCM_RIGHTS). A peer's end shows on its pidfd. Where the peer lives in another PID namespace,
// it shows on the socket, which a child of the peer can hold open; describe() says so.
// Threads: any, as of every Courier (courier.h, which also defines Parcel).
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "herd/transport/courier.h"

namespace herd::transport {

// Returns one connected SOCK_SEQPACKET socket per peer, and -1 for this rank. Ranks tell each other addresses in the
// store; only a process of the same user that knows the secret from the store is let in. Collective.
// `names` are the ranks as errors name them, where these are the ranks of one host of a larger job; empty: 0, 1, ...
// Throws kBadConfig where a peer is on another host, kTimeout with the ranks that did not come.
std::vector<int> connect_all_pairs(Store& store, const std::string& prefix, Rank rank, int size, SteadyTime deadline,
                                   const std::vector<Rank>& names = {});

// Makes the sockets of processes that one parent is about to fork: [i][j] is rank i's socket to rank j.
std::vector<std::vector<int>> make_socket_pairs(int size);

class ProcessCourier final : public Courier {
 public:
  // Owns the sockets from now on. Collective: exchanges process ids.
  ProcessCourier(Rank rank, std::vector<int> sockets, SteadyTime deadline, std::vector<Rank> names = {});
  ~ProcessCourier() override;
  std::string_view name() const override { return "shm"; }
  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void send(Rank to, const std::string& key, const Parcel& parcel) override;
  Parcel receive(Rank from, const std::string& key, SteadyTime deadline) override;
  PeerState state(Rank peer) override;
  std::string describe(Rank peer) override;
  int exit_descriptor(Rank peer) override;
  uint32_t exit_events(Rank peer) override;

 private:
  struct Peer {
    int socket = -1;
    int pidfd = -1;
    int pid = 0;                            // 0: not visible from here
    std::mutex mutex;                       // guards reads of the socket and `parcels`
    std::map<std::string, Parcel> parcels;  // arrived, not asked for yet
  };
  // Reads one parcel off the socket; returns false if none came before `until`. Throws kPeerLost at the socket's end.
  bool take_one(Rank from, SteadyTime until);
  std::string name_of(Rank rank) const;

  Rank rank_;
  std::vector<Rank> names_;  // empty: as they are numbered here
  std::vector<Peer> peers_;
};

}  // namespace herd::transport
