// The transport of a job's ranks: shared memory where all are on one host, else shared memory within each host and UCX
// between hosts.
#pragma once

#include <memory>

#include "herd/base/store.h"
#include "herd/launch/environment.h"
#include "herd/transport/transport.h"

namespace herd::comm {

// Collective over the job; the store must outlive the transport.
// Throws kTimeout naming the ranks that do not come, kBadConfig where hosts are to be joined and this build can't.
std::shared_ptr<transport::Transport> connect_world(const launch::Environment& environment, Store& store,
                                                    SteadyTime deadline);

}  // namespace herd::comm
