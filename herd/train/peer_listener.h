// Lets the peers of a rank know what its ops do: what it is in, for the reports of whoever waits for it, and the error
// that ends it.
#pragma once

#include "herd/comm/communicator.h"
#include "herd/runtime/executor.h"

namespace herd::train {

// `comm`, any group of the job, must outlive the executor that has the listener.
runtime::OpListener peer_listener(Communicator& comm);

}  // namespace herd::train
