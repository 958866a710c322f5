#include "herd/cli/run.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "herd/base/error.h"
#include "herd/launch/environment.h"
#include "herd/launch/job_token_file.h"
#include "herd/launch/launcher.h"
#include "herd/topology/load_topology.h"

namespace herd::cli {

std::string job_token(const std::string& token_file) {
  launch::Variables variables = launch::process_variables();
  const std::string path = token_file.empty() ? variables["HERD_TOKEN_FILE"] : token_file;
  if (path.empty()) return variables["HERD_TOKEN"];
  return launch::read_token_file(path);
}

namespace {

// Returns how many words an option of `herd run` and its value are.
size_t words_of(const std::string& option) {
  const bool attached = option.find('=') != std::string::npos || (!option.starts_with("--") && option.size() > 2);
  return attached || option == "-h" || option == "--help" ? 1 : 2;
}

}  // namespace

std::vector<std::string> mark_program(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments[0] != "run") return arguments;
  size_t at = 1;
  while (at < arguments.size() && arguments[at].starts_with('-')) {
    if (arguments[at] == "--") return arguments;
    at += words_of(arguments[at]);
  }
  if (at < arguments.size()) arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(at), "--");
  return arguments;
}

std::string unknown_option_of_run(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] != "run") return "";
  const CLI::App* run = app.get_subcommand("run");
  for (size_t at = 1; at < arguments.size() && arguments[at].starts_with('-') && arguments[at] != "--";
       at += words_of(arguments[at])) {
    const std::string& option = arguments[at];
    const std::string name = option.starts_with("--") ? option.substr(0, option.find('=')) : option.substr(0, 2);
    if (run->get_option_no_throw(name) == nullptr) return name;
  }
  return "";
}

void add_run_command(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* run = app.add_subcommand("run", "start a program as N ranks: herd run -n N -- PROGRAM ARGS...");
  run->add_option("-n,--ranks", options->ranks, "ranks on this node")->capture_default_str();
  run->add_option("--nnodes", options->num_nodes, "nodes of the job, each with a herd run of its own")
      ->capture_default_str();
  run->add_option("--node-rank", options->node_rank, "this node, from 0")->capture_default_str();
  run->add_option("--rendezvous", options->rendezvous, "HOST:PORT of node 0, where the nodes meet");
  run->add_option("--token-file", options->token_file,
                  "file with the job's secret (or HERD_TOKEN); random on one node");
  run->add_option("--max-restarts", options->max_restarts, "start the whole job again after a failure")
      ->capture_default_str();
  run->add_option("--survive", options->quorum,
                  "go on without ranks that fail, while so many others have not and the --servers live; default: a "
                  "rank that fails ends the job");
  run->add_option("--servers", options->servers, "with --survive: ranks that the job can't do without, as 0,1")
      ->delimiter(',')
      ->capture_default_str();
  run->add_option("--log-dir", options->log_dir, "keep each rank's output in rank<R>.log there");
  run->add_option("--topology", options->topology,
                  "machines that algorithms are chosen for: a file (docs/formats/topology.md), torus:4x4, mesh:4x4, "
                  "hosts:4x8 or racks:2x4x8; else what is found (or HERD_TOPOLOGY)");
  run->add_option("--grace", options->grace_s, "seconds from SIGINT, SIGTERM, SIGHUP or SIGUSR1 to SIGKILL")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  run->add_option("--most-ranks", options->most_ranks,
                  "ranks that this node may start; default: as many as it has descriptors, memory and cores for");
  run->add_option("--threads", options->threads, "compute threads of a rank; default: cores / ranks");
  run->add_option("program", options->command, "the program and its arguments")->required();
  run->footer("Options end at the program: herd run -n 2 --log-dir logs -- ./train --steps 10");
  run->callback([options] {
    const int status = run_run(*options);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

void check_topology(const std::string& topology, int num_ranks) {
  if (!topology.empty()) check_topology_of_ranks(load_topology(topology), num_ranks, {});
}

int run_run(const RunOptions& options) {
  const launch::LaunchOptions job{.command = options.command,
                                  .ranks_per_node = options.ranks,
                                  .num_nodes = options.num_nodes,
                                  .node_rank = options.node_rank,
                                  .rendezvous = options.rendezvous,
                                  .token = job_token(options.token_file),
                                  .max_restarts = options.max_restarts,
                                  .quorum = options.quorum,
                                  .servers = options.servers,
                                  .log_dir = options.log_dir,
                                  .max_ranks_per_node = options.most_ranks,
                                  .grace_s = options.grace_s,
                                  .topology = options.topology,
                                  .threads_per_rank = options.threads};
  try {
    // Node 0's topology file counts for the whole job, so only node 0 checks it.
    if (job.node_rank == 0) check_topology(job.topology, launch::ranks_of_job(job.ranks_per_node, job.num_nodes));
  } catch (const std::exception& error) {
    launch::tell_other_nodes(job, error);
    throw;
  }
  return launch::launch_job(job);
}

}  // namespace herd::cli
