// The courier of ranks that are processes of one host: one connected socket per pair. Shared memory and doorbells
// travel as descriptors (SCM_RIGHTS). A peer's end shows on its pidfd; where the peer lives in another PID namespace it
// shows on the socket instead (which a child that the peer forked can hold open), and describe() says so.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "herd/transport/courier.h"

namespace herd::transport {

// One connected SOCK_SEQPACKET socket per peer (own entry -1), through addresses that the ranks tell each other in the
// store. Only the same user who also knows the secret from the store is let in. Collective.
// `names`: what the ranks are called in errors, where these are the ranks of one host of a larger job; empty: 0, 1, ...
// Throws kBadConfig where a peer is on another host, kTimeout naming the ranks that did not come.
std::vector<int> connect_mesh(Store& store, const std::string& prefix, Rank rank, int size, SteadyTime deadline,
                              const std::vector<Rank>& names = {});

// The same for processes that one parent is about to fork: mesh[i][j] is rank i's socket to rank j.
std::vector<std::vector<int>> make_mesh(int size);

class ProcessCourier final : public Courier {
 public:
  // Takes over the sockets. Collective: exchanges process ids.
  ProcessCourier(Rank rank, std::vector<int> sockets, SteadyTime deadline, std::vector<Rank> names = {});
  ~ProcessCourier() override;
  std::string_view name() const override { return "shm"; }
  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  void send(Rank to, const std::string& key, const Parcel& parcel) override;
  Parcel receive(Rank from, const std::string& key, SteadyTime deadline) override;
  PeerState state(Rank peer) override;
  std::string describe(Rank peer) override;
  int end_descriptor(Rank peer) override;
  uint32_t end_events(Rank peer) override;

 private:
  struct Peer {
    int socket = -1;
    int pidfd = -1;
    int pid = 0;                            // 0: not visible from here
    std::mutex mutex;                       // of reading the socket
    std::map<std::string, Parcel> parcels;  // arrived, not asked for yet
  };
  // One parcel off the socket; false if none came before `until`. Throws kPeerLost at its end.
  bool take_one(Rank from, SteadyTime until);
  std::string name_of(Rank rank) const;

  Rank rank_;
  std::vector<Rank> names_;  // empty: as they are numbered here
  std::vector<Peer> peers_;
};

}  // namespace herd::transport
