// Defines how the ranks of a job, on any hosts, tell each other small things before they can send frames. No data of
// collectives goes through it. Threads: any.
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
  // Returns what each of `members` passed as `text`, in their order. Collective over `members`, which contain `rank`;
  // `key` is used once. Throws kTimeout or kPeerLost with the rank that did not come.
  virtual std::vector<std::string> all_gather(const std::string& key, const std::vector<Rank>& members, Rank rank,
                                              const std::string& text, SteadyTime deadline) = 0;
};

// Exchanges through the job's store, which it borrows; `prefix` begins every key.
std::unique_ptr<Exchange> store_exchange(Store& store, const std::string& prefix);
// Exchanges among ranks on one host through a courier: sockets between processes, a ThreadHub between threads.
std::unique_ptr<Exchange> courier_exchange(std::unique_ptr<Courier> courier);

}  // namespace herd::transport
