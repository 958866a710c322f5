#include "herd/train/peer_listener.h"

#include <string>

#include "herd/train/shared_error.h"

namespace herd::train {

runtime::OpListener peer_listener(Communicator& comm) {
  return {.began = [&comm](const std::string& op) { comm.show_activity(op); },
          .failed = [&comm](const Error& error) { tell_peers(comm, error); }};
}

}  // namespace herd::train
