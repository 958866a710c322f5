#include "herd/train/shared_error.h"

#include <string>

namespace herd::train {
namespace {

// Returns the outcome of an action as text: "ok <text>", or "<code> <message>".
std::string outcome_of(const std::function<std::string()>& action) {
  const auto failure = [](Code code, const std::string& message) {
    return std::to_string(static_cast<int>(code)) + " " + message;
  };
  try {
    return "ok " + action();
  } catch (const Error& error) {
    return failure(error.code(), error.message());
  } catch (const std::exception& error) {
    return failure(Code::kStorage, error.what());
  }
}

}  // namespace

std::string on_root(CheckpointPeers& peers, const std::function<std::string()>& action) {
  const std::string outcome = peers.broadcast_from_root(peers.rank() == 0 ? outcome_of(action) : "");
  const size_t space = outcome.find(' ');
  const std::string text = outcome.substr(space + 1);
  if (outcome.starts_with("ok ")) return text;
  throw SharedError(static_cast<Code>(std::stoi(outcome)), text);
}

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
