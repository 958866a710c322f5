// The transport of a job's ranks: shared memory where all are on one host, else shared memory within each host and,
// between hosts, TCP inside TLS, or UCX where the network is RDMA or declared trusted (HERD_TRUSTED_NETWORK).
#pragma once

#include <memory>
#include <string>

#include "herd/base/store.h"
#include "herd/launch/environment.h"
#include "herd/transport/transport.h"

namespace herd::comm {

// Collective over the job; the store must outlive the transport.
// Throws kTimeout naming the ranks that do not come, kBadConfig where hosts are to be joined and this build can't.
std::shared_ptr<transport::Transport> connect_world(const launch::Environment& environment, Store& store,
                                                    SteadyTime deadline);

// The network interfaces between hosts: those of HERD_NETWORK, else the one through which the rendezvous is
// reached. "" where nothing does.
std::string interfaces_between_hosts(const launch::Environment& environment);
// What joins hosts as far as this one can tell, and whether strangers are kept out of it: for herd doctor.
std::string wire_here(const launch::Environment& environment);

}  // namespace herd::comm
