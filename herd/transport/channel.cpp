#include "herd/transport/channel.h"

namespace herd::transport {

bool Channel::has_unclaimed_message(Rank, uint64_t) {
  throw Error(Code::kBadConfig, "this transport can't receive from any source\n  fix: name the rank");
}

}  // namespace herd::transport
