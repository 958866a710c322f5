// Defines how the launchers of a job agree, over the job's own store: they start together, hear of each other's
// failures, and end with one verdict. With one node there is nothing to agree about, and only the store remains.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "herd/launch/launcher.h"
#include "herd/launch/status.h"
#include "herd/launch/store_client.h"
#include "herd/launch/store_server.h"

namespace herd::launch {

struct Verdict {
  bool restart = false;
  int status = 0;
};

class Coordinator {
 public:
  Coordinator(const LaunchOptions& options, const std::string& token);

  const std::string& rendezvous() const { return rendezvous_; }
  // Waits for node 0 and the launchers of all nodes; false where `interrupted` said so first.
  bool start(int attempt, const std::function<bool()>& interrupted);
  // Tells every rank and launcher. The first failure of an attempt decides the job's status: returned is that one,
  // which is another node's where a rank here only failed of it.
  Failure fail(int attempt, const Failure& failure, int status);
  std::optional<Failure> failure(int attempt);
  Verdict finish(int attempt, int local_status, bool may_restart);
  // What the ranks published last, and when they were heard; empty where another node hosts the store.
  std::vector<Status> statuses(int attempt) const;
  std::vector<ClientState> peers(int attempt) const;

 private:
  bool connect(const std::function<bool()>& interrupted);
  void check_nodes(int attempt);  // fails the attempt where a whole node has fallen silent
  std::optional<std::string> ask(const std::string& key, double patience_s);

  LaunchOptions options_;
  std::string token_, rendezvous_;
  std::unique_ptr<StoreServer> server_;  // on node 0
  std::unique_ptr<StoreClient> client_;  // with several nodes
};

}  // namespace herd::launch
