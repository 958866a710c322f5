// Defines how the ranks of a job, on whatever hosts, tell each other small things before they can send frames, and
// agree. Off the data path. Threads: every method from any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "herd/base/ids.h"
#include "herd/base/store.h"
#include "herd/transport/courier.h"

namespace herd::transport {

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Collective over `members`, which hold `rank`: what each of them says, in their order. `key` is used once.
  // Throws kTimeout or kPeerLost, naming the rank that did not come.
  virtual std::vector<std::string> all_gather(const std::string& key, const std::vector<Rank>& members, Rank rank,
                                              const std::string& text, SteadyTime deadline) = 0;
};

// Over the job's store; borrows it.
std::unique_ptr<Exchange> store_exchange(Store& store, const std::string& prefix);
// Over the sockets or the hub of ranks on one host.
std::unique_ptr<Exchange> courier_exchange(std::unique_ptr<Courier> courier);

}  // namespace herd::transport
