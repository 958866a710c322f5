// A SharedError is one that every rank of the job throws with the same words, since all looked at the same values. Rank
// 0 reports it for all of them. Threads: as Communicator.
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

// Runs `action` on rank 0. Returns the action's text on every rank, or throws its error on every rank as a SharedError.
// Collective.
std::string on_root(CheckpointPeers& peers, const std::function<std::string()>& action);

// Call it before a rank leaves the job because of `error`. For a SharedError it waits until all ranks have the error,
// since a rank that leaves ends the group for the others. For any other error it fails the operations of its peers,
// with this rank's name. Throws nothing.
void tell_peers(Communicator& comm, const std::exception& error) noexcept;

}  // namespace herd::train
