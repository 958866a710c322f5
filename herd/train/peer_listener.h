// Tells a rank's peers which op it runs, for the reports of ranks that wait for it. Also tells them the
// error that ends it. Threads: as the executor that calls it.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/runtime/executor.h"

namespace herd::train {

// `comm`, any group of the job, must outlive the executor that has the listener.
runtime::OpListener peer_listener(Communicator& comm);

}  // namespace herd::train
