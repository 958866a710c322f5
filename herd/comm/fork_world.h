// Runs ranks as forked processes over shared memory, without a launcher, for tests and benches. Threads: one at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/transport/wire.h"

namespace herd::comm {

struct RankEnd {
  int pid = 0;
  int status = 0;     // as waitpid(2) gives it
  std::string error;  // what the rank's body threw; empty if nothing
};

// Makes a world on this machine look like one on several hosts.
struct WorldOptions {
  std::vector<int> host_of = {};  // by rank, numbered from 0 in the order of their first ranks; empty: one host
  transport::WireKind wire = transport::WireKind::kTcp;  // joins the hosts
  std::string interfaces = "lo";                         // network interfaces that the wire uses
  std::function<void(Rank)> run_first = {};              // runs in each rank's process before anything else
};
// Returns options that give every rank a host of its own.
WorldOptions one_rank_per_host(int num_ranks, transport::WireKind wire = transport::WireKind::kTcp);

class ForkWorld {
 public:
  // Forks num_ranks processes that each run `body` and exit with 0, or with 1 where it threw. REQUIRES that this
  // process has no other threads yet.
  ForkWorld(int num_ranks, std::function<void(Communicator&)> body, const WorldOptions& options = {});
  ~ForkWorld();  // kills the ranks that still run
  ForkWorld(const ForkWorld&) = delete;
  ForkWorld& operator=(const ForkWorld&) = delete;

  int pid(Rank rank) const { return ends_[static_cast<size_t>(rank)].pid; }
  void kill(Rank rank, int signal);
  std::vector<RankEnd> wait();  // waits for all ranks, and returns how each ended
  RankEnd wait(Rank rank);

 private:
  std::vector<RankEnd> ends_;
  std::vector<int> pipes_;
  std::vector<bool> waited_;
};

// Runs a world and waits for it. Throws kBug with the words of every rank that fails.
void run_forked(int num_ranks, const std::function<void(Communicator&)>& body, const WorldOptions& options = {});

}  // namespace herd::comm

namespace herd {
using comm::one_rank_per_host, comm::ForkWorld, comm::RankEnd, comm::run_forked, comm::WorldOptions;
}  // namespace herd
