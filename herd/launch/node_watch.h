// Decides which node of a job is lost, from what the store of node 0 knows of launchers and ranks.
//   gone     its launcher's connection has been closed for 2 s (kGoneAfter), or another launcher has taken its number
//   silent   its launcher and its ranks have sent nothing for a time that the caller chooses, over connections that
//            hold: they are stopped, or the network is cut. A stopped launcher whose ranks live is no lost node.
// Time that this process itself did not run counts for no silence.
// Threads: one at a time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "herd/launch/store_table.h"

namespace herd::launch {

struct LostNode {
  int node = 0;
  std::string reason;  // "node 1 is gone: ..."
  SteadyTime since;    // when it was last known to live
  bool is_silent = false;
};

class NodeWatch {
 public:
  static constexpr std::chrono::seconds kGoneAfter{2};  // as long as a client tries to connect again
  NodeWatch(int num_nodes, int ranks_per_node) : num_nodes_(num_nodes), ranks_per_node_(ranks_per_node) {}

  // Begins an attempt: launchers that say hello later are not those that started together.
  void begin(SteadyTime now) { begun_ = watching_since_ = checked_ = now; }
  // Says whether this launcher takes part, as one does that has neither left nor lost its connection.
  static bool is_here(const ClientState& launcher) { return !launcher.left && !launcher.disconnected; }
  // Returns the first lost node of those for which `awaited` is true. `launchers` and `ranks` are the store's clients.
  std::optional<LostNode> find_lost(const std::vector<ClientState>& launchers, const std::vector<ClientState>& ranks,
                                    const std::vector<bool>& awaited, std::chrono::milliseconds longest_silence,
                                    SteadyTime now);

 private:
  std::optional<LostNode> look_at(int node, const ClientState* launcher, const std::vector<ClientState>& ranks,
                                  std::chrono::milliseconds longest_silence, SteadyTime now) const;

  int num_nodes_, ranks_per_node_;
  SteadyTime begun_ = {};
  SteadyTime watching_since_ = {};  // silence before this does not count
  SteadyTime checked_ = {};         // time of the last call
};

}  // namespace herd::launch
