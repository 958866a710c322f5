// herd train: trains what a run file describes, with N ranks on this machine.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace herd::cli {

struct TrainOptions {
  std::string file;
  int ranks = 0;  // 0 = what the mesh of the run file asks for
  int max_restarts = 0;
  std::vector<std::string> overrides;  // section.key=value
};

void add_train_command(CLI::App& app);
int run_train(const TrainOptions& options);  // returns the job's exit status; throws Error

}  // namespace herd::cli
