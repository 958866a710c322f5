// Connects a job's ranks: by shared memory within each host, and between hosts by TCP inside TLS. UCX replaces TCP
// where the network is RDMA or declared trusted (HERD_TRUSTED_NETWORK). Threads: one at a time.
#pragma once

#include <memory>
#include <string>

#include "herd/base/store.h"
#include "herd/launch/environment.h"
#include "herd/transport/transport.h"

namespace herd::comm {

// Collective over the job; the store must outlive the transport. Throws kTimeout with the ranks that do not come,
// kBadConfig where there are several hosts and this build can't join them.
std::shared_ptr<transport::Transport> connect_world(const launch::Environment& environment, Store& store,
                                                    SteadyTime deadline);

// Tells who this process is in a world whose ranks meet in a given store.
struct StoreRank {
  Rank rank = 0;
  int size = 1;
  std::string host = {};  // what ranks of one host have in common; empty: transport::host_identity()
};
// Completes the settings of launch::read_settings() for connect_world(). On one host rank 0 makes the job's secret, and
// the store carries it. Collective. Throws kTimeout with the rank that does not come, kBadConfig on all ranks where
// they are on several hosts and one has no token.
launch::Environment meet_in_store(launch::Environment settings, Store& store, const StoreRank& self,
                                  SteadyTime deadline);

// Returns the network interfaces between hosts: those of HERD_NETWORK, else the one that reaches the rendezvous; ""
// where none does.
std::string interfaces_between_hosts(const launch::Environment& environment);
// Says for herd doctor how hosts are joined, as far as this one can tell, and whether strangers are kept out. Throws
// kBadConfig where HERD_TRANSPORT asks for UCX, and the network is neither RDMA nor declared trusted.
std::string wire_here(const launch::Environment& environment);

}  // namespace herd::comm
