// An error that every rank of the job throws with the same words, since all looked at the same values: rank 0 reports
// it for all of them.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "herd/base/error.h"
#include "herd/checkpoint/peers.h"
#include "herd/comm/communicator.h"

namespace herd::train {

class SharedError final : public Error {
 public:
  using Error::Error;
};

// Runs `action` on rank 0: every rank gets its text, or throws its error. Collective.
std::string on_root(CheckpointPeers& peers, const std::function<std::string()>& action);

// Before a rank leaves the job because of `error`. A shared one: waits until all ranks have it, since who leaves takes
// the group from those that still look. Any other: fails what peers are in, naming this rank. Throws nothing.
void tell_peers(Communicator& comm, const std::exception& error) noexcept;

}  // namespace herd::train
