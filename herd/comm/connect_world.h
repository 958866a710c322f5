// The transport of a job's ranks: shared memory where all are on one host, else shared memory within each host and UCX
// between hosts.
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

// The network interfaces that UCX is told to use: those of HERD_NETWORK, else the one through which the rendezvous is
// reached. "" where nothing does.
std::string interfaces_between_hosts(const launch::Environment& environment);

}  // namespace herd::comm
