#include "herd/train/shared_error.h"

#include <string>

namespace herd::train {

void tell_peers(Communicator& comm, const std::exception& error) noexcept {
  try {
    if (dynamic_cast<const SharedError*>(&error) != nullptr)
      comm.barrier({.name = "every rank has the error"});
    else
      comm.abort("rank " + std::to_string(comm.rank()) + ": " + error.what());
  } catch (const std::exception&) {
    // The group is over already, and `error` says more than this would.
  }
}

}  // namespace herd::train
