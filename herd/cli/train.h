// herd train: trains what a run file describes, with N ranks on this machine, or on each of several.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace herd::cli {

struct TrainOptions {
  std::string file;
  int ranks = 0;  // on this node; 0 = what the mesh of the run file asks for, on one node
  int num_nodes = 1, node_rank = 0;
  std::string rendezvous = {}, token_file = {};
  int max_restarts = 0;
  int quorum = 0;  // > 0: go on without workers that fail, while so many ranks have not
  int most_ranks = 0;
  double grace_s = 30;
  std::vector<std::string> overrides;  // section.key=value
};

void add_train_command(CLI::App& app);
int run_train(const TrainOptions& options);  // returns the job's exit status; throws Error

}  // namespace herd::cli
