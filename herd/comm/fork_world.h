// Ranks as forked processes over shared memory, without a launcher. For tests and benches.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/transport/wire.h"

namespace herd::comm {

struct RankEnd {
  int pid = 0;
  int status = 0;     // as waitpid gives it
  std::string error;  // what the rank's body threw; empty if nothing
};

// How a world on this machine is to look like one on several hosts.
struct WorldOptions {
  std::vector<int> host_of = {};                         // by rank, from 0 in order; Empty: one host
  transport::WireKind wire = transport::WireKind::kTcp;  // between hosts
  std::string interfaces = "lo";                         // that it uses
  std::function<void(Rank)> before = {};  // in each rank's process before anything else; forked ranks only
};
// Every rank a host of its own.
WorldOptions each_alone(int num_ranks, transport::WireKind wire = transport::WireKind::kTcp);

class ForkWorld {
 public:
  // Forks num_ranks processes that each run `body` and exit: 0, or 1 where it threw.
  // REQUIRES that this process has no other threads yet.
  ForkWorld(int num_ranks, std::function<void(Communicator&)> body, const WorldOptions& options = {});
  ~ForkWorld();  // kills what still runs
  ForkWorld(const ForkWorld&) = delete;
  ForkWorld& operator=(const ForkWorld&) = delete;

  int pid(Rank rank) const { return ends_[static_cast<size_t>(rank)].pid; }
  void kill(Rank rank, int signal);
  std::vector<RankEnd> wait();  // for all
  RankEnd wait(Rank rank);

 private:
  std::vector<RankEnd> ends_;
  std::vector<int> pipes_;
  std::vector<bool> waited_;
};

// All ranks end well, or the first error is thrown as kBug with the rank's words.
void run_forked(int num_ranks, const std::function<void(Communicator&)>& body, const WorldOptions& options = {});

}  // namespace herd::comm

namespace herd {
using comm::each_alone, comm::ForkWorld, comm::RankEnd, comm::run_forked, comm::WorldOptions;
}  // namespace herd
