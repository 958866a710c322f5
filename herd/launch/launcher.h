// Starts the ranks of a job on this node, watches them, and ends with the status of the first one that failed.
//   - It starts one process per rank, with an environment as launch/environment.h reads it, and prints each line of its
//     output with the rank before it (launch/output.h).
//   - A rank that fails ends the job: the others hear it from the store at once, get SIGTERM after 1 s and SIGKILL 5 s
//     later (grace_s counts only for signals that ask for a stop). Then the whole job starts again, up to max_restarts
//     times, after pauses of 1, 2, 4 .. 60 s. Status 2, a request that can't be met, ends it for good.
//   - With a quorum the job goes on without ranks that fail, while its servers live (param_server) and enough others.
//   - It passes SIGINT, SIGTERM, SIGHUP and SIGUSR1 on; ranks have grace_s to save. A second signal at least 2 s later
//     ends them at once (launch/stop_request.h).
//   - No process of the job outlives the launcher (launch/guardian.h), and the launcher replaces a guardian that dies.
// On several nodes one launcher runs on each; they meet at `rendezvous`, which node 0 hosts.
#pragma once

#include <exception>
#include <string>
#include <vector>

namespace herd::launch {

struct LaunchOptions {
  std::vector<std::string> command = {};  // program and arguments
  int ranks_per_node = 1;
  int num_nodes = 1;
  int node_rank = 0;
  std::string rendezvous = {};  // HOST:PORT with HOST an address of node 0; required with several nodes
  std::string token = {};       // secret of the job; required with several nodes, else random
  int max_restarts = 0;
  int quorum = 0;                     // > 0: the job goes on without ranks that fail while so many others have not
  std::vector<int> servers = {0};     // ranks without which it does not go on
  std::string log_dir = {};           // folder of rank<R>.log files; "" = none
  int max_ranks_per_node = 0;         // limit on ranks of this node; 0 = as many as it has room for (launch/capacity.h)
  double grace_s = 30;                // seconds from a signal that asks for a stop to SIGKILL
  double rendezvous_timeout_s = 300;  // seconds that the launchers of several nodes wait for each other
  std::string topology = {};          // HERD_TOPOLOGY of the ranks; "" = as in this process's environment
  int threads_per_rank = 0;           // 0 = cores / ranks_per_node, at least 1
  double deadline_s = 60;             // of the ranks' operations; several nodes wait as long for one that is silent
  std::vector<std::string> settings = {};  // lines "key = value" that must be the same on every node
};

// Returns ranks_per_node * num_nodes. Throws kBadConfig where that is more than a job can have.
int ranks_of_job(int ranks_per_node, int num_nodes);

// Blocks until the job has ended. Returns 0, or the status of the rank that failed first (128 + signal). It takes
// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD while it runs: call it from the main thread, before other threads start.
// Throws kBadConfig where the options can't be met. The other nodes hear what it throws.
int launch_job(const LaunchOptions& options);

// Tells the launchers of the other nodes why this one leaves before launch_job(): those that wait by now hear it. The
// numbers of nodes and of this one may be wrong. Takes 1 s at most, 2 s on node 0. Does nothing where the options lack
// rendezvous or token.
void tell_other_nodes(const LaunchOptions& options, const std::exception& error) noexcept;

}  // namespace herd::launch
