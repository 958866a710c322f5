#include "herd/train/train_rank.h"

#include <ATen/Parallel.h>

#include <cstdio>
#include <stdexcept>

#include "herd/base/log.h"
#include "herd/base/thrown_object.h"
#include "herd/bridge/budget_allocator.h"
#include "herd/comm/communicator.h"
#include "herd/launch/environment.h"
#include "herd/train/shared_error.h"
#include "herd/train/stop_signal.h"
#include "herd/train/trainer.h"

namespace herd::train {

int exit_status(const Error& error) { return error.code() == Code::kBadConfig ? 2 : 1; }

namespace {

JobAttempt attempt_of(const launch::Environment& environment) {
  JobAttempt attempt{
      .job = environment.launch_id, .restarts_before = environment.num_restarts, .survives = environment.quorum > 0};
  attempt.memory_table = environment.memory_table;
  if (environment.started_s >= 0) {
    attempt.job_started = std::chrono::steady_clock::time_point(std::chrono::seconds(environment.started_s));
  }
  return attempt;
}

}  // namespace

int train_rank(const std::string& run_file, const std::vector<std::string>& overrides) {
  return train_rank(run_file, overrides, [](spec::RunFile run, Communicator& comm, const JobAttempt& attempt) {
    Trainer(std::move(run), comm, attempt).run();
  });
}

int train_rank(const std::string& run_file, const std::vector<std::string>& overrides, const TrainRun& train) {
  const launch::Environment environment = launch::read_environment();
  const StopSignal signals(environment.rank == 0);
  if (environment.size > 1 && environment.source != "herd run") set_log_rank(environment.rank);  // which names ranks
  spec::RunFile run = spec::parse_run_file(run_file, overrides);
  const int threads = run.train.threads > 0 ? static_cast<int>(run.train.threads) : environment.threads;
  if (threads > 0) at::set_num_threads(threads);
  DeviceMemory::install();
  DeviceMemory::set_budget(run.memory.device_budget);
  Communicator comm = Communicator::create(run.comm.topology == "auto" ? "" : run.comm.topology);
  try {
    train(std::move(run), comm, attempt_of(environment));
    return 0;
  } catch (const SharedError& error) {
    if (comm.rank() == 0) std::fprintf(stderr, "herd: %s\n", error.what());
    tell_peers(comm, error);  // a launcher ends rank 0 soon after the first rank has left
    return exit_status(error);
  } catch (const std::exception& error) {
    tell_peers(comm, error);
    throw;
  } catch (...) {
    const std::runtime_error error("the program throws " + thrown_object() +
                                   "\n  fix: throw a std::exception, whose words say what is wrong");
    tell_peers(comm, error);
    throw error;
  }
}

}  // namespace herd::train
