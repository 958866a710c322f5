// herd run starts a program as N ranks.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace herd::cli {

struct RunOptions {
  int ranks = 1;  // on this node
  int num_nodes = 1, node_rank = 0;
  std::string rendezvous, token_file, log_dir, topology;
  int max_restarts = 0, threads = 0, most_ranks = 0, quorum = 0;
  std::vector<int> servers = {0};
  double grace_s = 30;
  std::vector<std::string> command;
};

// Puts "--" before the program's name in the arguments of `herd run`, so that options end there; every option of it
// takes one value. Returns other commands' arguments as they are.
std::vector<std::string> mark_program(std::vector<std::string> arguments);
// Returns the first option before the program that `herd run` does not have; "" where it has all. CLI11 takes such a
// one for the program, and complains of words after it.
std::string unknown_option_of_run(const CLI::App& app, const std::vector<std::string>& arguments);
// Throws kBadConfig or kCorruptFile where the topology (topology/load_topology.h; "" = none) can't be read, or has
// other ranks.
void check_topology(const std::string& topology, int num_ranks);
// Returns the job's secret: from the file if one is named, else from HERD_TOKEN_FILE or HERD_TOKEN; "" where none is
// given.
std::string job_token(const std::string& token_file);
void add_run_command(CLI::App& app);
int run_run(const RunOptions& options);  // returns the job's exit status; throws Error

}  // namespace herd::cli
