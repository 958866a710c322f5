#include "herd/cli/train.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>

#include "herd/base/error.h"
#include "herd/base/version.h"
#include "herd/cli/finished_run.h"
#include "herd/cli/read_run_file.h"
#include "herd/cli/run.h"
#include "herd/cli/trainer_process.h"
#include "herd/launch/cores.h"
#include "herd/launch/environment.h"
#include "herd/launch/launcher.h"
#include "herd/planner/gradient_algorithm.h"
#include "herd/spec/layout.h"
#include "herd/spec/run_file.h"
#include "herd/spec/run_keys.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/routing_folder.h"
#include "herd/storage/run_lock.h"
#include "herd/strategies/server_sync.h"
#include "herd/strategies/techniques.h"
#include "herd/topology/load_topology.h"
#include "herd/topology/presets.h"
#include "herd/topology/topology.h"

namespace herd::cli {

void add_train_command(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* train = app.add_subcommand("train", "train what a run file describes");
  train->add_option("FILE", options->file, "the run file (docs/guide/run_file.md)")->required();
  train->add_option("OVERRIDES", options->overrides, "section.key=value, in place of what the file says");
  train
      ->add_option("-n,--ranks", options->ranks,
                   "ranks on this machine; default: what [mesh] asks for, dp = 1 unless stated")
      ->check(CLI::Range(1, kMaxRanks));
  train
      ->add_option("--nnodes", options->num_nodes, "nodes of the job, each with a herd train of its own (see herd run)")
      ->capture_default_str();
  train->add_option("--node-rank", options->node_rank, "this node, from 0")->capture_default_str();
  train->add_option("--rendezvous", options->rendezvous, "HOST:PORT of node 0, where the nodes meet");
  train->add_option("--token-file", options->token_file, "file with the job's secret (or HERD_TOKEN)");
  train->add_option("--max-restarts", options->max_restarts, "start again from the last checkpoint after a failure")
      ->capture_default_str();
  train->add_option("--survive", options->quorum,
                    "with strategy.sync = \"server_async\": go on without ranks that only work and fail, while so "
                    "many others have not");
  train->add_option("--most-ranks", options->most_ranks,
                    "ranks that this node may start; default: as many as it has descriptors, memory and cores for");
  train
      ->add_option("--grace", options->grace_s,
                   "seconds that a step and its save have after a signal that asks for a stop, before SIGKILL")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  train->footer([] { return spec::run_keys_help(); });
  train->callback([options] {
    const int status = run_train(*options);
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

namespace {

// Returns every key of the run with its value, which all nodes must have alike: rank 0's count for all ranks.
std::vector<std::string> settings_of(const spec::RunFile& run) {
  std::vector<std::string> lines = {std::string("herd = ") + version()};
  for (const spec::Key& key : spec::run_keys()) lines.push_back(key.full_name() + " = " + value_toml(key, run));
  return lines;
}

// Returns the machines of the ranks, if they are known before the start. Node 0's topology file counts for all nodes,
// and HERD_TRANSPORT may treat one host as several.
std::optional<Topology> known_machines(const std::string& given, int ranks, const TrainOptions& options) {
  const launch::Variables variables = launch::process_variables();
  const auto variable = [&](const char* name) { return variables.contains(name) ? variables.at(name) : std::string(); };
  const std::string name = given.empty() ? variable("HERD_TOPOLOGY") : given;
  if (!name.empty() && options.node_rank == 0) {
    check_topology(name, ranks * options.num_nodes);
    return load_topology(name);
  }
  const std::string transport = variable("HERD_TRANSPORT");
  if (!name.empty() || options.num_nodes > 1 || transport == "tcp" || transport == "ucx") return std::nullopt;
  return one_host(ranks, launch::usable_cores());
}

// Returns the ranks that the run can't do without: those that serve, and rank 0, which writes the run's folder. Throws
// kBadConfig where it can't do without any.
std::vector<int> ranks_that_serve(const spec::RunFile& run, int all_ranks, int quorum) {
  const spec::Layout layout = strategies::trainable_layout(run, all_ranks);
  const bool runs_ahead = strategies::staleness(run, layout) != 0, dedicated = layout.dedicated_servers > 0;
  const int servers = runs_ahead ? strategies::num_servers(run, layout) : all_ranks;
  if (servers + (dedicated ? 1 : 0) >= all_ranks) {
    throw Error(
        Code::kBadConfig,
        "--survive " + std::to_string(quorum) + ": this run can't do without any of its " + std::to_string(all_ranks) +
            " ranks, which " + (runs_ahead ? "all serve" : "wait for each other in each step") +
            (runs_ahead && dedicated ? ", but for rank 0, which saves" : "") +
            "\n  fix: strategy.sync = \"server_async\" without strategy.staleness = 0, and strategy.servers = 1 "
            "or more, but fewer than ranks; or --max-restarts");
  }
  std::vector<int> ranks(static_cast<size_t>(servers));
  std::iota(ranks.begin(), ranks.end(), dedicated ? layout.world_size : 0);
  if (dedicated) ranks.insert(ranks.begin(), 0);
  return ranks;
}

// Checks the run and prepares its folders; adds what the launcher starts. Returns false where nothing is left to train.
bool prepare_job(const TrainOptions& options, launch::LaunchOptions& job) {
  const spec::RunFile run = read_run_file(options.file, options.overrides);
  if (run.train.replays_routing()) recorded_routing_files(run.train.replay_routing);  // throws where there are none
  const auto folder = std::filesystem::path(run.log.dir) / run.log.name;
  if (options.node_rank == 0) refuse_owned_run(folder);  // before a line is added to its logs
  if (options.num_nodes == 1) {  // launchers of several nodes wait for each other, and their ranks find out together
    if (const auto finished = find_finished_run(run)) {
      std::fprintf(stderr, "herd train: %s\n", finished->c_str());
      return false;
    }
  }
  const std::string trainer = trainer_path();
  if (options.num_nodes > 1 && options.ranks == 0) {
    throw Error(Code::kBadConfig, "herd train on " + std::to_string(options.num_nodes) +
                                      " nodes needs to know how many ranks this one has\n  fix: --ranks N");
  }
  const int ranks = options.ranks > 0 ? options.ranks : ranks_of_mesh(run);
  if (options.ranks == 0)
    std::fprintf(stderr, "herd train: %d rank%s, as [mesh] asks for (--ranks N for more)\n", ranks,
                 ranks == 1 ? "" : "s");
  const int all_ranks = launch::ranks_of_job(ranks, options.num_nodes);
  check_before_start(run, all_ranks);
  if (options.quorum != 0) job.servers = ranks_that_serve(run, all_ranks, options.quorum);
  const std::string topology = run.comm.topology != "auto" ? run.comm.topology : "";
  planner::check_gradient_algorithm(run, strategies::trainable_layout(run, all_ranks),
                                    known_machines(topology, ranks, options));
  std::vector<std::string> command = {trainer, "train", options.file};
  command.insert(command.end(), options.overrides.begin(), options.overrides.end());
  if (run.model.weights != "none") {  // the ranks do not look for the weights again: they might find newer ones
    const std::vector<std::string> model = model_overrides(run);
    command.insert(command.end(), model.begin(), model.end());
  }
  const auto logs = folder / "logs";
  make_folders(folder);
  FileSystem files(folder);
  make_folders(logs, files);
  job.command = command;
  job.ranks_per_node = ranks;
  job.log_dir = logs;
  job.threads_per_rank = static_cast<int>(run.train.threads);
  job.deadline_s = run.comm.deadline_s;
  job.settings = settings_of(run);
  return true;
}

}  // namespace

int run_train(const TrainOptions& options) {
  launch::LaunchOptions job{.num_nodes = options.num_nodes,
                            .node_rank = options.node_rank,
                            .rendezvous = options.rendezvous,
                            .token = job_token(options.token_file),
                            .max_restarts = options.max_restarts,
                            .quorum = options.quorum,
                            .max_ranks_per_node = options.most_ranks,
                            .grace_s = options.grace_s};
  try {
    if (!prepare_job(options, job)) return 0;
  } catch (const std::exception& error) {
    launch::tell_other_nodes(job, error);
    throw;
  }
  return launch::launch_job(job);
}

}  // namespace herd::cli
