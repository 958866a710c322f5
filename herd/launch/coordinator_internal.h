// Defines how the launchers of a job agree, over the job's own store: they start together, hear of each other's
// failures, and end with one verdict. With one node there is nothing to agree about, and only the store remains.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "herd/launch/launcher.h"
#include "herd/launch/node_watch.h"
#include "herd/launch/status.h"
#include "herd/launch/store_client.h"
#include "herd/launch/store_server.h"

namespace herd::launch {

struct Verdict {
  bool restart = false;
  int status = 0;
  std::string cause = {};  // why the job failed, the same on all nodes; "" = as this node knows
};

class Coordinator {
 public:
  using Interrupted = std::function<bool()>;  // true: stop waiting

  Coordinator(const LaunchOptions& options, const std::string& token);
  ~Coordinator();

  const std::string& rendezvous() const { return rendezvous_; }
  // Waits for node 0 and the launchers of all nodes, and returns the number of the attempt that starts, which node 0
  // chooses: `attempt`, unless node 0 or this node was started again. Returns nothing where `interrupted` said so
  // first. Throws where a node does not come in time, does not fit the others, or has left the job.
  std::optional<int> start(int attempt, const Interrupted& interrupted);
  // Tells every rank and launcher. The first failure of an attempt decides the job's status: returned is that one,
  // which is another node's where a rank here only failed of it.
  Failure fail(int attempt, const Failure& failure, int status);
  std::optional<Failure> failure(int attempt);
  // Waits until the ranks of all nodes have ended, or their nodes are lost. Returns nothing where `interrupted` said so
  // first.
  std::optional<Verdict> finish(int attempt, int local_status, bool may_restart, const Interrupted& interrupted);
  // Tells the others that this node leaves the job for good, before its end. Does nothing with one node.
  void leave(int attempt, const Failure& failure) noexcept;
  // What the ranks published last, and when they were heard; empty where another node hosts the store.
  std::vector<Status> statuses(int attempt) const;
  std::vector<ClientState> peers(int attempt) const;

 private:
  bool connect(SteadyTime deadline, const Interrupted& interrupted);
  std::vector<std::string> settings() const;                     // lines "key = value" that all nodes must have alike
  void check_same_settings(const std::string& of_node_0) const;  // throws kBadConfig with the keys that differ
  bool gather_nodes(int attempt, SteadyTime deadline, const Interrupted& interrupted);  // on node 0
  std::optional<int> follow_node_0(SteadyTime deadline, const Interrupted& interrupted);
  std::vector<int> missing_nodes(int attempt) const;
  std::optional<LostNode> find_lost(int attempt, const std::vector<bool>& awaited, std::chrono::milliseconds silence);
  void note_failure(int attempt);
  void check_nodes(int attempt);  // fails the attempt where a whole node is lost
  void warn_of_launchers();       // on the one node of a job
  // Returns the verdict as text, on node 0; "" where `interrupted` said so first.
  std::string decide(int attempt, int local_status, const Interrupted& interrupted);
  void wait_until_heard(int attempt) const;
  Verdict without_node_0(const Error& error, int local_status, bool may_restart);
  std::optional<std::string> ask(const std::string& key, double patience_s);
  std::string this_node() const { return "node " + std::to_string(options_.node_rank); }
  Error timeout_error(const std::string& what) const;

  LaunchOptions options_;
  std::string token_, rendezvous_;
  const std::chrono::milliseconds longest_silence_;  // of a node that nothing else says is lost
  NodeWatch watch_;                                  // on node 0
  std::optional<SteadyTime> failed_at_;              // of the present attempt, as this launcher heard
  std::string silent_ranks_;                         // of node 0: ranks that were silent when the attempt failed
  bool has_warned_ = false, has_lost_node_0_ = false;
  std::unique_ptr<StoreServer> server_;  // on node 0
  std::unique_ptr<StoreClient> client_;  // with several nodes
};

}  // namespace herd::launch
